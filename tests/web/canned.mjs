// What the page tests on canned answers share: a server and a browser for a whole group, a fresh page for each test, and what a picture
// looks like.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { becomes, launch, noErrors, openPage } from './browser.mjs';
import { start } from './fixture_server.mjs';

export const query = (page) => new URL(page.url()).searchParams;

// As if nobody had been there: nothing kept, nobody signed in, the mouse nowhere, no script at work.
async function leave(page) {
  await page.evaluate(() => {
    localStorage.clear();
    sessionStorage.clear();
  });
  await page.context().clearCookies();
  await page.mouse.move(0, 0);
  await page.goto('about:blank');
}

// For visit(): a page of its own, for who changes more of it than leave() takes back: its clock, its routes, its size, what it may do.
export const kOwnPage = {};

// Inside describe(). `world` is the server once the tests run; `visit` runs `body` on a page as good as fresh, whose requests are
// world.requests, and fails on any script error. Tests follow each other on one page, which costs half of opening one for each; who
// gives `options` of the browser's context, or kOwnPage, has one of its own, as has whoever comes after a failure.
export function canned() {
  let shared = null;
  const held = {
    world: null,
    async visit(path, body, options) {
      const page = (options ? null : shared) ?? await openPage(browser, options);
      if (page === shared) shared = null;
      held.world.requests.length = 0;
      try {
        await page.goto(held.world.url + path);
        await body(page);
        noErrors(page);
        if (!options) {
          await leave(page);
          shared = page;
        }
      } finally {
        if (page !== shared) await page.context().close();
      }
    },
  };
  let browser;
  before(async () => {
    held.world = await start();
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await held.world?.stop();
  });
  return held;
}

// How many colours a canvas has, and one number for all of it.
export function picture(page, selector) {
  return page.locator(`${selector} canvas`).evaluate((canvas) => {
    if (canvas.width === 0 || canvas.height === 0) return { colours: 0, sum: 0 };
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Map();
    let sum = 0;
    for (let at = 0; at < data.length; at += 4) {
      const colour = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
      if (data[at + 3] > 0) seen.set(colour, (seen.get(colour) ?? 0) + 1);
      sum = (Math.imul(sum, 31) + colour) | 0;
    }
    return { colours: [...seen.values()].filter((pixels) => pixels > 200).length, sum };
  });
}

async function pictureWhere(page, selector, good, what) {
  await page.locator(`${selector} canvas`).waitFor();
  const now = await becomes(() => picture(page, selector), good);
  assert.ok(good(now), what);
  return now;
}
// The picture once it has colours, and once it is another one.
export const drawn = (page, selector, least = 4) => pictureWhere(page, selector, ({ colours }) => colours >= least, 'nothing is drawn');
export const differs = (page, selector, from) => pictureWhere(page, selector, ({ sum }) => sum !== from.sum, 'the picture did not change');
