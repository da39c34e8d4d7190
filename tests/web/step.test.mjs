// The step page and the service page in a real browser, against canned answers; with LOCKSTEP_URL set, the step page of that running
// server instead. Run by `npm run test:page` in web/ after `npm run build`.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { accessible, becomes, counted, launch, noErrors, openPage, says, shot } from './browser.mjs';
import { canned, differs, drawn, kOwnPage, query } from './canned.mjs';
import { kHostile, kLarge, kService, kSlow } from './fixture_data.mjs';

const kServer = process.env.LOCKSTEP_URL;
const kFirstLoadMax = 100 * 1024;
const stepPath = (name, step) => `/jobs/${encodeURIComponent(name)}/steps/${step}`;
const panel = (page) => page.locator('aside.panel');

const ready = (page) => drawn(page, '#timeline');

describe('the step page on canned answers', { skip: kServer ? 'LOCKSTEP_URL is set' : false }, () => {
  const held = canned();
  const { visit } = held;

  it('says who made whom wait, then shows every rank', () => visit(stepPath(kSlow, 1384), async (page) => {
    await page.getByRole('heading', { name: /^Rank 43 \(node-17\) made 6\d ranks wait 1\d\d ms, in its backward: \d+ % of a step/ }).waitFor();
    const { colours } = await ready(page);
    assert.ok(colours >= 6, `${colours} colours`);
    const card = await page.getByRole('region', { name: 'Step 1,384' }).innerText();
    assert.match(card, /detail of all 64 ranks/);
    assert.match(card, /clocks agree to 6\.2 µs/);
    await says(page.getByRole('region', { name: 'Timeline' }), /waiting in a collective[\s\S]*collective, all in it[\s\S]*64 ranks, a line each/);
    const box = await page.locator('#timeline').boundingBox();
    assert.ok(box.y + box.height <= 900, `the timeline ends at ${box.y + box.height}`);
    await accessible(page);
    await shot(page, 'step');
    const hrefs = await page.locator('a[download]').evaluateAll((links) => links.map((link) => link.getAttribute('href')));
    assert.deepEqual(hrefs, ['tar', 'pftrace'].map((format) => `/api/jobs/${kSlow}/steps/1384/perfetto?format=${format}`));
    const waits = page.getByRole('region', { name: 'Who waited for whom' });
    await says(waits, /1–12 of 6\d pairs, longest wait first/);
    for (const name of ['Communicators', 'Phases', 'Ranks of the step']) await page.locator(`section[aria-label="${name}"]`).waitFor();
  }));

  it('zooms by wheel and drag; the address, the question and Back follow', () => visit(stepPath(kSlow, 1384), async (page) => {
    const whole = await ready(page);
    held.world.requests.length = 0;
    await page.locator('#timeline').hover({ position: { x: 700, y: 100 } });
    await page.mouse.wheel(0, -400);
    await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
    const near = await differs(page, '#timeline', whole);
    const [from, to] = [Number(query(page).get('from')), Number(query(page).get('to'))];
    assert.ok(from > 0 && to > from && to - from < 300e6, `${from} ${to}`);
    const isAsked = () => held.world.requests.some((path) => path.includes(`from_ns=${from}&to_ns=${to}`));
    assert.ok(await becomes(isAsked, (asked) => asked), held.world.requests.join(' '));
    const box = await page.locator('#timeline').boundingBox();
    await page.mouse.move(box.x + 500, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 600, box.y + 80, { steps: 4 });
    await shot(page, 'step-drag');
    await page.mouse.up();
    await page.waitForFunction((old) => new URL(location.href).searchParams.get('from') !== old, String(from));
    await differs(page, '#timeline', near);
    assert.ok(Number(query(page).get('to')) - Number(query(page).get('from')) < (to - from) / 5);
    assert.equal(query(page).get('rank'), null, 'a drag picks nobody');
    await page.goBack();
    assert.equal(query(page).get('from'), String(from));
    await page.clock.install();
    await page.locator('#timeline').dblclick({ position: { x: 700, y: 100 } });
    await page.clock.runFor(1_000);  // whatever a click alone would have done by then
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
    assert.equal(query(page).get('rank'), null, 'a double click picks nobody');
    await page.locator('#timeline').click({ position: { x: 700, y: 100 } });
    await page.clock.runFor(1_000);
    await page.waitForFunction(() => new URL(location.href).searchParams.has('rank'));
  }, kOwnPage));

  it('takes a click beside the rows for one, whatever was dragged before', () => visit(stepPath(kSlow, 1384), async (page) => {
    await ready(page);
    const plot = await page.locator('#timeline').boundingBox();
    await page.mouse.move(plot.x + 300, plot.y + 20);
    await page.mouse.down();
    await page.mouse.move(plot.x + 500, plot.y + 20);
    await page.mouse.up();
    await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
    await page.mouse.click(plot.x + 10, plot.y + 5);
    await page.waitForFunction(() => new URL(location.href).searchParams.has('rank'));
  }));

  it('tells on hover who, what, how long and for whom; a click opens the rank', () => visit(stepPath(kSlow, 1384), async (page) => {
    await ready(page);
    const box = await page.locator('#timeline').boundingBox();
    const at = { x: 72 + (box.width - 120) * 0.75, y: 3 };
    await page.locator('#timeline').hover({ position: at });
    await says(page.locator('.tip'), /rank 0, node-12\nAllReduce 1,385 of dp, 1\d\d ms, 2\.2 GB\nwaiting in a collective; waited 1\d\d ms until rank 43 came/);
    await shot(page, 'step-hover');
    await page.locator('#timeline').click({ position: at });
    await panel(page).getByRole('heading', { name: 'Operations' }).waitFor();
    assert.equal(query(page).get('rank'), '0');
    await says(panel(page), /Rank 0 in step 1,384[\s\S]*node-12[\s\S]*waiting in a collective[\s\S]*forward[\s\S]*AllReduce/);
    await accessible(page);
    await shot(page, 'step-rank');
    await panel(page).getByRole('button', { name: 'AllReduce' }).click();
    await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
  }));

  it('needs no mouse, from the job to the step and back', () => visit(`/jobs/${kSlow}?step=1384`, async (page) => {
    await page.getByRole('link', { name: 'Open step 1,384' }).waitFor();
    await page.keyboard.press('Enter');
    await ready(page);
    await page.keyboard.press('w');
    await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
    const from = Number(query(page).get('from'));
    await page.keyboard.press('d');
    await page.waitForFunction((old) => Number(new URL(location.href).searchParams.get('from')) > old, from);
    await page.keyboard.press('0');
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
    await page.locator('#timeline').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('rank') === '1');
    await page.keyboard.press('Escape');
    await panel(page).waitFor({ state: 'detached' });
    await page.keyboard.press('Escape');
    await page.locator('#heatmap').waitFor();
    assert.equal(new URL(page.url()).pathname + new URL(page.url()).search, `/jobs/${kSlow}?step=1384`);
  }));

  it('loses no key that is pressed while the address is being written', () => visit(stepPath(kSlow, 1384), async (page) => {
    await ready(page);
    await page.evaluate(() => {
      const push = history.pushState;
      history.pushState = function pushOnce(...state) {
        push.apply(this, state);
        history.pushState = push;
        window.zoomed = Number(new URL(location.href).searchParams.get('from'));
        document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'd', bubbles: true }));
      };
    });
    await page.keyboard.press('w');
    await page.waitForFunction(() => window.zoomed > 0 && Number(new URL(location.href).searchParams.get('from')) > window.zoomed);
  }));

  it('restores everything from the address', () => visit(`${stepPath(kSlow, 1384)}?from=100000000&to=200000000&ranks=40-47&rank=43`, async (page) => {
    await ready(page);
    await panel(page).getByRole('heading', { name: 'Rank 43 in step 1,384' }).waitFor();
    await says(page.getByRole('region', { name: 'Timeline' }), /100 ms of it, from 100 ms · 8 ranks, a line each/);
    assert.equal(await page.getByRole('textbox', { name: 'ranks' }).inputValue(), '40-47');
    await shot(page, 'step-zoomed');
    await page.getByRole('textbox', { name: 'ranks' }).fill('40 to 47');
    await page.getByText('such as 0-7,64').waitFor();
    await page.getByRole('textbox', { name: 'ranks' }).fill('');
    await page.keyboard.press('Enter');
    await page.getByText('64 ranks, a line each').waitFor();
  }));

  it('offers what to do about a step without detail', () => visit(stepPath(kSlow, 1387), async (page) => {
    await page.getByRole('heading', { name: /^No detail of step 1,387/ }).waitFor();
    await page.getByText('From summaries alone: Rank 43').waitFor();
    assert.deepEqual(await page.locator('.near').allInnerTexts(), ['1,360', '1,368', '1,376', '1,384']);
    await accessible(page);
    await shot(page, 'step-no-detail');
    await page.getByRole('button', { name: 'Ask for it' }).click();
    await page.getByRole('heading', { name: /^Rank 43 \(node-17\) made/ }).waitFor();
    await ready(page);
    held.world.fixture.asked.clear();
  }));

  it('has a table twin', () => visit(stepPath(kSlow, 1384), async (page) => {
    await ready(page);
    await page.keyboard.press('t');
    const twin = page.getByRole('region', { name: 'Time by kind' });
    await twin.waitFor();
    assert.equal(await twin.locator('tbody tr').first().locator('td').first().innerText(), '43');
    await says(page.getByRole('region', { name: 'Timeline' }), /1–32 of 64 ranks, most own work first/);
    await accessible(page);
    await shot(page, 'step-table');
  }));

  it('hands out the commands', () => visit(stepPath(kSlow, 1384), async (page) => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await ready(page);
    await page.getByRole('button', { name: 'Copy as CLI: lockstep step' }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `lockstep step --server ${held.world.url} ${kSlow} 1384`);
    await page.getByRole('button', { name: 'Copy trace command' }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `lockstep trace --server ${held.world.url} --step 1384 ${kSlow}`);
  }, kOwnPage));

  it('is the same in the dark', () => visit(`${stepPath(kSlow, 1384)}?rank=43`, async (page) => {
    const { colours } = await ready(page);
    assert.ok(colours >= 6, `${colours} colours`);
    await panel(page).getByRole('heading', { name: 'Operations' }).waitFor();
    await accessible(page);
    await shot(page, 'step-dark');
  }, { colorScheme: 'dark' }));

  it('draws 4,096 ranks and says what a line stands for', () => visit(stepPath(kLarge, 800), async (page) => {
    const { colours } = await ready(page);
    assert.ok(colours >= 5, `${colours} colours`);
    await page.getByText(/4,0\d\d ranks, each line = \d+ of them: the one that waits least is shown/).waitFor();
    await shot(page, 'step-large');
  }));

  it('shows hostile names as text', () => visit(stepPath(kHostile, 48), async (page) => {
    await ready(page);
    await page.locator('#timeline').hover({ position: { x: 1250, y: 5 } });
    await page.getByText('<b onmouseover=hacked()>node-0</b>').first().waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await counted(page.locator('main img, main script, main i'), 0);
  }));

  it('fits a narrow window', () => visit(stepPath(kSlow, 1384), async (page) => {
    await ready(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400, 'no sideways scroll');
    await accessible(page);
    await shot(page, 'narrow-step');
  }, { viewport: { width: 400, height: 800 } }));

  it('passes on what the server says about an unknown job', () => visit(stepPath('lama-70b', 3), async (page) => {
    await page.getByText('no job "lama-70b". Did you mean llama-70b?').waitFor();
    await accessible(page);
  }));

  it('marks steps with detail on the job page and leads there', () => visit(`/jobs/${kSlow}?step=1384`, async (page) => {
    await page.getByText('step in detail').waitFor();
    await page.getByText('every rank on one axis').waitFor();
    await says(page.getByRole('region', { name: 'Charts' }), /host\s+2\.\d %/);
    await page.locator('header').getByText('MFU 38 %').waitFor();
    await says(page.locator('header'), /loss 2\.1/);
    await shot(page, 'job-step-detail');
    await page.getByRole('link', { name: 'Open step 1,384' }).click();
    await ready(page);
    assert.equal(new URL(page.url()).pathname, stepPath(kSlow, 1384));
    await page.goBack();
    await page.getByRole('heading', { name: 'Slowest ranks in this step' }).waitFor();
  }));

  it('leads from the fleet to a service, whose name has a dot', () => visit('/', async (page) => {
    await page.getByRole('link', { name: kService }).click();
    await page.getByRole('heading', { name: /^First token after 182 ms/ }).waitFor();
    await says(page.locator('main'), /first token[\s\S]*182 ms[\s\S]*Not reported: decode[\s\S]*1–10 of 1,812 requests, slowest first token first/);
    await accessible(page);
    await shot(page, 'service');
    await page.reload();
    await page.getByRole('heading', { name: /^First token after 182 ms/ }).waitFor();
  }));

  it('loads within 100 KiB', async () => {
    const folder = new URL('../../web/dist/', import.meta.url);
    // What index.html names; other pages fetch theirs when somebody goes there.
    const index = await readFile(new URL('index.html', folder), 'utf8');
    const files = ['index.html', ...new Set([...index.matchAll(/\/(assets\/[\w.-]+\.(?:js|css))"/g)].map(([, name]) => name))];
    assert.ok(files.length >= 3, `${files}`);
    let sum = 0;
    for (const name of files) sum += gzipSync(await readFile(new URL(name, folder))).length;
    assert.ok(sum <= kFirstLoadMax, `${sum} bytes in ${files.length} files`);
  });
});

describe('the step page on a running server', { skip: kServer ? false : 'LOCKSTEP_URL is not set' }, () => {
  it('opens the newest step with detail, and zooms', async () => {
    const ask = async (path) => (await fetch(kServer + path)).json();
    const detailed = async () => {
      for (const job of (await ask('/api/jobs')).jobs) {
        const step = (await ask(`/api/jobs/${encodeURIComponent(job.job_id)}/traced?limit=1`)).steps?.[0]?.step;
        if (step !== undefined) return { job: job.job_id, step };
      }
      return null;
    };
    const found = await becomes(detailed, (one) => one !== null);
    assert.ok(found, 'no job has a step with detail');
    const browser = await launch();
    try {
      for (const colorScheme of ['light', 'dark']) {
        const page = await openPage(browser, { colorScheme });
        await page.goto(kServer + stepPath(found.job, found.step));
        const whole = await ready(page);
        assert.ok(whole.colours >= 4, `${whole.colours} colours`);
        await says(page.locator('h2.sentence').first(), /\w{3,}.*\.$/);
        await accessible(page);
        await shot(page, `live-step-${colorScheme}`);
        await page.locator('#timeline').hover({ position: { x: 500, y: 20 } });
        await page.mouse.wheel(0, -400);
        await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
        await differs(page, '#timeline', whole);
        noErrors(page);
        await page.context().close();
      }
    } finally {
      await browser.close();
    }
  });
});
