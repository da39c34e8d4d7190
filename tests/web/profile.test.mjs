// The page of a kernel profile and the flame graph of stack samples in a real browser, against canned answers. Run by
// `npm run test:page` in web/ after `npm run build`.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { accessible, becomes, counted, says, shot } from './browser.mjs';
import { canned, differs, drawn, kOwnPage, query } from './canned.mjs';
import { kSlow, kSuspected } from './fixture_data.mjs';

const profilePath = (name) => `/jobs/${kSlow}/profiles/${name}`;
const kernels = (page) => page.getByRole('region', { name: 'Kernels', exact: true }).first();

const ready = (page) => drawn(page, '#kernels');

describe('a kernel profile on canned answers', { skip: process.env.LOCKSTEP_URL ? 'LOCKSTEP_URL is set' : false }, () => {
  const held = canned();
  const { visit } = held;

  it('is three clicks from the fleet to the guilty kernel, and as many back', () => visit('/', async (page) => {
    await page.getByRole('link', { name: kSlow }).click();
    await page.getByRole('link', { name: 'Kernels of steps 1,300–1,303' }).click();
    await page.getByRole('button', { name: /^Show kernel cutlass_80_tensorop/ }).click();
    await ready(page);
    assert.match(query(page).get('kernel'), /align1>/);
    await says(page.getByRole('group', { name: 'Selected kernel' }), /rank 43\s+11\.9 ms a step in 24 calls[\s\S]*median of 3 others\s+0 µs in 0/);
    await page.getByRole('link', { name: 'To the verdict' }).click();
    await page.getByRole('region', { name: 'Verdict: slow, confirmed' }).waitFor();
    for (let back = 0; back < 4; back += 1) await page.goBack();
    await page.getByRole('link', { name: kSlow }).waitFor();
  }));

  it('says first what is wrong, then shows every rank, then the numbers; its steps lead to their page and back', () => visit(profilePath('p-ready'), async (page) => {
    const { colours } = await ready(page);
    assert.ok(colours >= 4, `${colours} colours`);
    const card = await page.getByRole('region', { name: 'What the profile shows' }).innerText();
    assert.match(card, /4 of 4 ranks profiled, the job has 64[\s\S]*clocks agree to[\s\S]*Rank 43 holds the others up by 5\.6 ms a step[\s\S]*slow GPU slowed by heat \(gpu\): Rank 43 \(node-17, GPU 3\)/);
    await says(page.getByRole('region', { name: 'Timeline' }), /compute[\s\S]*communication[\s\S]*4 ranks/);
    await says(kernels(page).locator('tbody tr').first(), /align1\s+\+11\.9 ms\s+11\.9 ms\s+0 µs\s+24\s+0\s+506 µs\s+matrix multiplication, bf16/);
    await says(page.locator('section[aria-label=Gaps]'), /DataLoader.*data loading/);
    await says(page.getByRole('region', { name: 'Rank against its peers' }), /median of 3 others[\s\S]*waiting for others in collectives\s+0 µs\s+3\.\d+ ms/);
    await says(page.locator('section[aria-label=Ranks] tbody tr').first(), /43\s+node-17[\s\S]*16 of 16/);
    assert.deepEqual(await page.locator('.steps-of a').evaluateAll((links) => links.map((link) => link.getAttribute('href'))),
      [1300, 1301, 1302, 1303].map((step) => `/jobs/${kSlow}/steps/${step}?rank=43`));
    await accessible(page);
    await shot(page, 'profile');
    await page.getByRole('link', { name: '1,301', exact: true }).click();
    await page.getByRole('link', { name: 'Kernels of this step' }).click();
    await page.getByText(/13\.\d+ ms from 1\d(\.\d+)? ms on/).waitFor();
    assert.equal(query(page).get('step'), '1301');
  }));

  it('zooms by wheel, tells on hover which kernel runs, and selects it by a click', () => visit(profilePath('p-ready'), async (page) => {
    const whole = await ready(page);
    const plot = page.locator('#kernels');
    await plot.hover({ position: { x: 160, y: 8 } });
    await page.mouse.wheel(0, -500);
    await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
    await differs(page, '#kernels', whole);
    const wide = Number(query(page).get('to')) - Number(query(page).get('from'));
    assert.ok(wide > 0 && wide < 30e6, `${wide}`);
    await plot.hover({ position: { x: 161, y: 9 } });
    await says(page.locator('.tip'), /nvjet_tst_128x256\S+\n198 µs · compute\nrank 41, node-17, stream 7\n.* into step 1,300/);
    await plot.click({ position: { x: 161, y: 9 } });
    await page.locator('tr.chosen', { hasText: 'nvjet_tst' }).waitFor();
    assert.equal(query(page).get('rank'), '41');
    await plot.click({ position: { x: 20, y: 8 } });
    assert.equal(query(page).get('open'), '41,43', 'beside its row a rank is opened');
    await page.goBack();
    await page.goBack();
    assert.equal(page.url(), held.world.url + profilePath('p-ready'));
  }));

  it('needs no mouse', () => visit(`/jobs/${kSlow}`, async (page) => {
    await page.getByRole('link', { name: 'Kernels of steps 1,300–1,303' }).waitFor();
    await page.keyboard.press('p');
    await ready(page);
    await page.keyboard.press('w');
    await page.waitForFunction(() => new URL(location.href).searchParams.has('from'));
    await page.keyboard.press('0');
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
    await page.locator('#kernels').focus();
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter', '.', '.']) await page.keyboard.press(key);
    await says(page.locator('.tip'), /nvjet_tst\S+\n198 µs · compute\nrank 42/);
    await says(page.locator('p[role=status]'), /nvjet_tst/);
    assert.equal(query(page).get('open'), '42,43');
    await page.keyboard.press('Space');
    await page.locator('tr.chosen', { hasText: 'nvjet_tst' }).waitFor();
    await page.keyboard.press('k');
    await page.locator('tr.chosen', { hasText: 'align1' }).waitFor();
    await page.keyboard.press('t');
    await page.getByRole('table', { name: 'Slices in view' }).waitFor();
    await page.keyboard.press('Escape');
    assert.equal(query(page).get('kernel'), null);
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: 'Which kernels do these ranks run?' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('region', { name: 'Verdict: slow, confirmed' }).waitFor();
  }));

  it('restores from the address what was seen, and marks the kernel', () => visit(profilePath('p-ready'), async (page) => {
    await ready(page);
    await page.getByRole('button', { name: /^Show kernel/ }).click();
    await page.getByRole('button', { name: 'Find it in the timeline' }).click();
    await page.getByText(/6\.\d+ ms from .* on/).waitFor();
    await page.goto(`${page.url()}&ranks=42-43&sort=total`);
    await ready(page);
    await page.getByText(/6\.\d+ ms from .* on · 2 ranks · marked: cutlass_80/).waitFor();
    await kernels(page).getByRole('heading', { name: 'Which kernels take the time of a step?' }).waitFor();
    await page.getByRole('combobox', { name: /^against/ }).selectOption('p-before');
    await page.getByRole('heading', { name: 'Rank 43 against itself in steps 1,100–1,103' }).waitFor();
    assert.equal(query(page).get('against'), 'p-before');
    await accessible(page);
    await shot(page, 'profile-kernel-dark');
  }, { colorScheme: 'dark' }));

  it('says where a profile stands, and shows it by itself once it is analysed', () => visit(profilePath('p-failed'), async (page) => {
    await page.getByRole('heading', { name: 'The analysis failed: rank-43.json.gz: not a JSON trace (at byte 0)' }).waitFor();
    await counted(page.locator('a[download]'), 2, 'the traces can be fetched');
    await page.goto(held.world.url + profilePath('p-analysing'));
    await page.getByRole('heading', { name: /^Analysing the traces of 4 ranks/ }).waitFor();
    await shot(page, 'profile-analysing');
    held.world.fixture.analysed.add('p-analysing');
    await ready(page);
    held.world.fixture.analysed.clear();
  }));

  it('asks again for a picture that did not come, whole or near', () => visit(profilePath('p-none'), async (page) => {
    const lost = { whole: 0, near: 0 };
    await page.route('**/p-ready/timeline?*', (route) => {
      const which = route.request().url().includes('from_ns=') ? 'near' : 'whole';
      lost[which] += 1;
      return lost[which] === 1 ? route.abort() : route.continue();
    });
    await page.goto(held.world.url + profilePath('p-ready'));
    await ready(page);
    await page.keyboard.press('w');
    await becomes(() => lost.near, (near) => near >= 2);
    assert.deepEqual(lost, { whole: 2, near: 2 });
  }, kOwnPage));

  it('leaves the server alone once nothing is to come', () => visit('/', async (page) => {
    await page.clock.install();
    await page.goto(held.world.url + profilePath('p-none'));
    await page.getByRole('heading', { name: /^Nothing to analyse/ }).waitFor();
    held.world.requests.length = 0;
    for (let second = 0; second < 10; second += 1) {
      await page.clock.runFor(1_000);
      await page.evaluate(() => fetch('/api/session').then(() => null));
    }
    assert.deepEqual(held.world.requests.filter((path) => path.includes('/profiles/')), []);
  }, kOwnPage));

  it('compares a rank that it has where the link names one that it has not', () => visit(`${profilePath('p-ready')}?rank=7`, async (page) => {
    await page.getByText('Rank 7 is not in this profile; rank 43 is compared instead.').waitFor();
    await page.getByRole('region', { name: 'Rank against its peers' }).getByRole('heading', { name: /^Rank 43 against/ }).waitFor();
  }));

  it('says so where no stacks come', () => visit('/', async (page) => {
    await page.clock.install();
    await page.goto(`${held.world.url}/jobs/${kSuspected}`);
    await page.getByRole('button', { name: 'Which line?' }).click();
    await page.getByText('Looking at their stacks for 5 s').waitFor();
    await page.clock.runFor(26_000);
    await page.getByText('No stacks came within 25 s; lockstep lines shows why.').waitFor();
  }, kOwnPage));

  it('shows which line makes a rank slow, frame by frame and as a table', () => visit(`/jobs/${kSuspected}`, async (page) => {
    const lines = page.getByRole('region', { name: 'Lines', exact: true });
    await lines.getByText("train.py:142 in load_batch: 58 % of rank 6's time").waitFor();
    await says(lines.locator('.frame').nth(1), /load_batch \(train\.py:142\)\s+\+56/);
    const [more, less] = await Promise.all(['load_batch (train.py:142)', 'step (train.py:160)'].map((name) => (
      lines.getByRole('button', { name }).evaluate((button) => getComputedStyle(button).backgroundColor.match(/[\d.]+/g).map(Number)))));
    assert.ok(more[0] > more[2] && less[2] > less[0], `red more ${more}, blue less ${less}`);
    await lines.getByRole('button', { name: /^train \(/ }).focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowLeft');
    assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^step \(train\.py:161\) −17: 9 % of rank 6's time, 26 % of its peers'/);
    await page.keyboard.press('Enter');
    await counted(lines.locator('.frame'), 3, 'its caller, the frame and its callee');
    await page.keyboard.press('Escape');
    assert.equal(new URL(page.url()).pathname, `/jobs/${kSuspected}`, 'Esc goes out of the frames first');
    await lines.getByRole('button', { name: 'with the 2 callers that all have in common' }).click();
    await lines.getByRole('button', { name: /^main thread/ }).waitFor();
    await accessible(page);
    await shot(page, 'job-lines');
    await lines.getByRole('button', { name: 'as a table' }).click();
    await says(lines.getByRole('row', { name: /train.py:142/ }), /58 %\s+2\.4 %\s+\+56/);
    await page.getByRole('button', { name: 'Which line?' }).click();
    await page.getByText('Looking at their stacks for 5 s').waitFor();
  }));

  it('fits a narrow window', () => visit(profilePath('p-ready'), async (page) => {
    await page.locator('#kernels').scrollIntoViewIfNeeded();
    await ready(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400, 'no sideways scroll');
    await shot(page, 'narrow-profile');
  }, { viewport: { width: 400, height: 800 } }));
});
