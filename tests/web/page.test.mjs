// The web page in a real browser against canned answers: the way from the fleet to the guilty rank, by mouse and by keyboard, and
// what must hold on the way. Run by `npm run test:page` in web/ after `npm run build`.
//
// With LOCKSTEP_URL set, the same browser visits that running server instead: the second group below.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { accessible, becomes, counted, launch, noErrors, openPage, says, shot } from './browser.mjs';
import { kHealthy, kHostile, kHung, kLarge, kSlow, kSuspected } from './fixture_data.mjs';
import { canned, differs, drawn, kOwnPage, query } from './canned.mjs';
import { kIncident } from './fixture_incident.mjs';
import { fleetPages } from './fleet_pages.mjs';
import { logPages } from './log_pages.mjs';
import { nodePages } from './node_pages.mjs';

const kServer = process.env.LOCKSTEP_URL;
const mapReady = (page) => drawn(page, '#heatmap', 2);  // of a healthy job it has few colours
// What is asked for last of a job, once its ranks are known, is there too: nothing moves any more.
const allReady = async (page) => {
  await page.locator('header').getByText('MFU 38 %').waitFor();
  return mapReady(page);
};
const jobPath = (name) => `/jobs/${encodeURIComponent(name)}${name.includes('.') ? '/' : ''}`;

describe('the page on canned answers', { skip: kServer ? 'LOCKSTEP_URL is set' : false }, () => {
  const held = canned();
  const { visit } = held;
  const panel = (page) => page.locator('aside.panel');

  it('lists jobs worst first, with a glyph and a word for health', () => visit('/', async (page) => {
    await page.getByRole('link', { name: kSlow }).waitFor();
    const words = await page.locator('tbody tr td:first-child').allInnerTexts();
    assert.deepEqual(words, ['▲ slow', '■ hung', '△ suspected', '◌ unknown', '✓ ok', '◌ unknown']);
    await says(page.locator('tbody tr').nth(1), /24 of 32/);
    await page.getByRole('img', { name: 'last hour: 318 ms to 430 ms a step' }).waitFor();
    await counted(page.locator('svg.spark'), 1, 'a job of which nothing is known has no line');
    await accessible(page);
    await shot(page, 'fleet');
  }));

  nodePages(held);
  logPages(held);
  fleetPages(held);

  it('shows SLEs by what is degraded, and what a chosen classifier has to do with it', () => visit('/sle', async (page) => {
    await page.getByRole('link', { name: 'Training progress' }).waitFor();
    await says(page.locator('tbody tr').first(), /95\.7 to 95\.7 %|9\d\.\d to 9\d\.\d %/, 'a range where minutes are unknown');
    await says(page.locator('main'), /Not measured here: model flop/);
    await accessible(page);
    await shot(page, 'sle');
    await page.getByRole('link', { name: 'Training progress' }).click();
    await page.getByRole('heading', { name: 'Who is charged?' }).waitFor();
    await says(page.locator('.sle-parts .total'), /100 %/);
    await page.locator('.sle-parts').getByRole('link', { name: 'gpu', exact: true }).click();
    await page.getByRole('heading', { name: 'When was it charged to gpu?' }).waitFor();
    assert.equal(query(page).get('classifier'), 'gpu');
    await page.getByText('nobody: unexplained').waitFor({ state: 'detached' });
    await accessible(page);
    await shot(page, 'sle-progress');
  }));

  it('leads from a verdict to what to do about its cause', () => visit(jobPath(kSlow), async (page) => {
    await page.getByRole('link', { name: /^What to do about/ }).first().click();
    await page.getByRole('heading', { name: /^What to do when Lockstep says:/, level: 2 }).waitFor();
    await says(page.locator('main'), /What looks alike/);
    await accessible(page);
    await shot(page, 'runbook');
    await page.locator('article').getByRole('link', { name: 'slow-compute' }).first().click();
    await page.getByRole('heading', { name: /Slow GPU \(slow-compute\)/, level: 2 }).waitFor();
    await page.goBack();
    await page.setViewportSize({ width: 390, height: 844 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no sideways scrolling on a phone');
    await shot(page, 'runbook-phone');
    await page.getByRole('button', { name: /dark/ }).click();
    await shot(page, 'runbook-dark');
  }, kOwnPage));

  it('teaches when there are no jobs', async () => {
    held.world.fixture.empty = true;
    try {
      await visit('/', async (page) => {
        await page.getByRole('heading', { name: 'No jobs yet.' }).waitFor();
        await says(page.locator('main'), /lockstep run --server http:\/\/127\.0\.0\.1:5318 -- torchrun/, 'with the address of this server');
        await says(page.locator('main'), /NCCL_PROFILER_PLUGIN=lockstep/);
        await accessible(page);
        await shot(page, 'fleet-empty');
      });
    } finally {
      held.world.fixture.empty = false;
    }
  });

  it('asks for a token where the server wants one, and shows who is signed in', async () => {
    held.world.token = 'lst_right';
    try {
      await visit(jobPath(kSlow), async (page) => {
        const field = page.getByLabel('Token');
        await field.waitFor();
        await accessible(page);
        await shot(page, 'sign-in');
        await field.fill('lst_wrong');
        await page.getByRole('button', { name: 'Sign in' }).click();
        await page.getByText('this token is not valid').waitFor();
        await shot(page, 'sign-in-refused');
        await field.fill('lst_right');
        await field.press('Enter');
        await page.getByRole('region', { name: 'Verdict: slow, confirmed' }).waitFor();
        await page.getByText('token 3f9a1c20 (on call)').waitFor();
        assert.equal(await page.evaluate(() => document.cookie), '', 'no script reads the cookie');
        assert.doesNotMatch(page.url(), /lst_/);
        await accessible(page);
        await shot(page, 'signed-in');
        await page.reload();
        await page.getByText('token 3f9a1c20 (on call)').waitFor();
        await page.getByRole('button', { name: 'Sign out' }).click();
        await field.waitFor();
      });
    } finally {
      held.world.token = '';
    }
  });

  it('leads to the issuer first where there is one', async () => {
    [held.world.token, held.world.issuer] = ['lst_right', 'Example'];
    try {
      await visit(`${jobPath(kSlow)}?last=50`, async (page) => {
        const link = page.getByRole('link', { name: 'Sign in with Example' });
        await link.waitFor();
        assert.equal(await link.getAttribute('href'), `/api/session/oidc?return=${encodeURIComponent(`${jobPath(kSlow)}?last=50`)}`);
        assert.ok((await link.boundingBox()).y < (await page.getByLabel('Token').boundingBox()).y, 'above the token');
        await accessible(page);
        await shot(page, 'sign-in-issuer');
      });
    } finally {
      [held.world.token, held.world.issuer] = ['', ''];
    }
  });

  it('leads by clicks from the fleet to the guilty rank', () => visit('/', async (page) => {
    await page.getByRole('link', { name: kSlow }).click();
    const card = page.getByRole('region', { name: 'Verdict: slow, confirmed' });
    await card.waitFor();
    await says(card, /GPU slowed by heat \(gpu\): Rank 43 \(node-17, GPU 3\) makes all 64 ranks wait 118 ms a step/);
    await says(card, /Considered and set aside \(1\)[^]*Not checked \(1\)/);
    assert.equal(await card.getByRole('link', { name: 'incident', exact: true }).getAttribute('href'), `/incidents/${kIncident}`);
    await mapReady(page);
    await card.getByRole('button', { name: 'Show rank 43' }).click();
    await panel(page).getByText('node-17').waitFor();
    await says(panel(page), /Rank 43 · step 1,388[\s\S]*throttle-thermal[\s\S]*own time/);
    assert.equal(query(page).get('rank'), '43');
    assert.equal(query(page).get('step'), '1388');
    await accessible(page);
    await shot(page, 'job-slow-rank');
    await page.goBack();
    await panel(page).waitFor({ state: 'detached' });
    assert.equal(new URL(page.url()).search, '');
  }));

  it('shows verdict, breakdown and heat map in one 1440 x 900 window', () => visit(jobPath(kSlow), async (page) => {
    await allReady(page);
    const map = await page.locator('#heatmap').boundingBox();
    assert.ok(map.y + map.height <= 900, `heat map ends at ${map.y + map.height}`);
    assert.ok(map.height >= 168, `heat map is ${map.height} tall`);
    await shot(page, 'job-slow');
    await accessible(page);
  }));

  it('says what the loss is made of and why MFU is what it is', () => visit(jobPath(kSlow), async (page) => {
    const cost = page.getByRole('region', { name: 'Cost', exact: true });
    await cost.waitFor();
    // Asked for once the ranks are known, not a round of what changes slowly later; verdicts are asked for every second.
    const rounds = held.world.requests.filter((path) => path.endsWith('/why'));
    assert.ok(rounds.length > 0 && rounds.length < 5, `${rounds.length} rounds`);
    await says(cost, /24 % of the last 200 steps is lost[\s\S]*19\.8 GPU-hours, 49\.50 at 2\.50 a GPU-hour/);
    const widths = await cost.locator('.share-bar > span').evaluateAll((all) => all.map((one) => parseFloat(one.style.width)));
    assert.equal(widths.reduce((sum, width) => sum + width, 0), 100);
    await says(cost.getByRole('row', { name: /unexplained/ }), /12 %/);
    const mfu = page.getByRole('region', { name: 'MFU', exact: true });
    await says(mfu, /^Why is MFU[\s\S]*MFU is 38 %[\s\S]*fell from 59 % to 38 % at step 1,204/);
    // Bars step down: each ends where the next begins, the last where what was achieved ends.
    const places = await mfu.locator('.fall > span').evaluateAll((all) => all.map((one) => [parseFloat(one.style.left), parseFloat(one.style.width)]));
    const [, ...falls] = places;
    for (let i = 1; i + 1 < falls.length; ++i) assert.ok(Math.abs(falls[i][0] + falls[i][1] - falls[i - 1][0]) < 0.01, `bar ${i}`);
    assert.ok(Math.abs(falls.at(-2)[0] - falls.at(-1)[1]) < 0.01, 'the last bar ends at MFU');
    await mfu.scrollIntoViewIfNeeded();
    await shot(page, 'job-cost-mfu');
  }));

  it('says what is missing where MFU is not known, and shows no bar where nothing is lost', () => visit(jobPath(kHealthy), async (page) => {
    const mfu = page.getByRole('region', { name: 'MFU', exact: true });
    await mfu.waitFor();
    await says(mfu, /MFU is not known: the job reports no FLOPs/);
    await counted(page.locator('.share-bar'), 0);
    await page.locator('section[aria-label=MFU]').scrollIntoViewIfNeeded();
    await shot(page, 'job-mfu-unknown');
  }));

  it('opens a claim to its numbers beside its peers, and links to this server only', () => visit(jobPath(kSlow), async (page) => {
    await page.getByRole('button', { name: /thermal slowdown/ }).click();
    const numbers = page.locator('.numbers').first();
    assert.match((await numbers.innerText()).replace(/\s+/g, ' '), /1,155 MHz peers 1,980 MHz before 1,980 MHz steps 1,204–1,388/);
    await page.getByRole('button', { name: /the input/ }).click();
    const links = await page.locator('.numbers a').evaluateAll((all) => all.map((link) => link.getAttribute('href')));
    assert.deepEqual(links, ['/api/metrics?name=hw.gpu.clock']);
    await accessible(page);
    await shot(page, 'job-claims');
  }));

  it('takes a word on the verdict by keyboard, shows it pressed, and takes it back', () => visit(jobPath(kSlow), async (page) => {
    const card = page.getByRole('region', { name: 'Verdict: slow, confirmed' });
    const group = card.getByRole('group', { name: 'Was this verdict right?' });
    const right = group.getByRole('button', { name: 'Right' });
    const wrong = group.getByRole('button', { name: 'Wrong' });
    assert.equal(await wrong.getAttribute('aria-pressed'), 'false');
    await wrong.focus();
    await page.keyboard.press('Enter');
    await group.locator('button[aria-pressed=true]', { hasText: 'Wrong' }).waitFor();
    assert.equal(held.world.fixture.said.get('slow-43').right, false);
    assert.deepEqual(await group.getByLabel('it was').locator('option').allInnerTexts(), ['not reported', 'ecc']);
    await group.getByLabel('it was').selectOption('ecc');
    const said = () => held.world.fixture.said.get('slow-43').cause;
    assert.equal(await becomes(said, (cause) => cause !== ''), 'ecc');
    await accessible(page);
    await shot(page, 'job-judged');
    await page.reload();
    await group.locator('button[aria-pressed=true]', { hasText: 'Wrong' }).waitFor();
    await right.click();
    await group.locator('button[aria-pressed=true]', { hasText: 'Right' }).waitFor();
    assert.equal(await wrong.getAttribute('aria-pressed'), 'false');
    await right.click();
    await group.locator('button[aria-pressed=true]').waitFor({ state: 'detached' });
    assert.equal(held.world.fixture.said.get('slow-43'), null);
    held.world.fixture.storeFails = true;
    try {
      await right.click();
      await card.getByRole('alert').getByText('Not kept: the disk is full').waitFor();
    } finally {
      held.world.fixture.storeFails = false;
    }
  }));

  it('lists incidents, those that need a person first, and what is guilty again and again', () => visit('/', async (page) => {
    await page.getByRole('link', { name: 'incidents' }).click();
    await page.getByRole('region', { name: 'What is broken' }).getByText('guilty 4 times in 30 days').waitFor();
    const states = await page.locator('tbody tr td:first-child').allInnerTexts();
    assert.deepEqual(states, ['■ open', '■ open', '✓ resolved']);
    await says(page.locator('tbody tr').first(), /Rank 43[\s\S]*GPU-5b1e0f2a-43 of node-17[\s\S]*2 jobs[\s\S]*21.3 GPU-hours lost\s*42.60 at 2.00 a GPU-hour[\s\S]*4/);
    await says(page.locator('tbody tr').nth(1), /–\s+1$/);
    await says(page.locator('tbody tr').nth(2), /1.2 GPU-hours lost\s*2.40 at 4.00 a GPU-hour …/);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await accessible(page);
    await shot(page, 'incidents');
    await page.getByRole('link', { name: /Rank 43/ }).click();
    await page.waitForURL(`**/incidents/${kIncident}`);
  }));

  it('shows an incident by its link alone: who is hit, what it costs, when what happened, what to do', () => visit(`/incidents/${kIncident}`, async (page) => {
    const answer = page.getByRole('region', { name: 'The incident' });
    await answer.waitFor();
    await says(answer, /open[\s\S]*critical[\s\S]*Rank 43[\s\S]*2 jobs[\s\S]*21.3 GPU-hours lost, 42.60[\s\S]*guilty 4 times[\s\S]*Next: Drain node-17/i);
    const hit = page.getByRole('region', { name: 'Whom it hits' });
    await says(hit, /1 GPU on 1 host in 3 jobs depend on it[\s\S]*loses 31 %[\s\S]*19 min later so far[\s\S]*no verdict[\s\S]*1 of 4 ranks/);
    await counted(page.getByRole('region', { name: 'Timeline' }).locator('li'), 4);
    await counted(page.getByRole('region', { name: /^Verdict: / }), 2);
    assert.deepEqual(await page.locator('.of-job').allInnerTexts(), [`Evidence in ${kSlow}`, `Evidence in ${kHung}`]);
    await accessible(page);
    await shot(page, 'incident');
    await answer.getByLabel('A note with it').fill('looking at the fans');
    await answer.getByRole('button', { name: 'Acknowledge' }).click();
    await page.getByRole('region', { name: 'Timeline' }).getByText('looking at the fans').waitFor();
    await counted(answer.getByRole('button', { name: 'Acknowledge' }), 0);
    await says(answer, /acknowledged[\s\S]*on call/i);
    await answer.getByRole('button', { name: 'Resolve' }).click();
    await answer.getByRole('button', { name: 'Open again' }).click();
    await answer.getByRole('button', { name: 'Acknowledge' }).waitFor();
    // The way to the evidence: the job's page at the step and the rank.
    await hit.getByRole('link', { name: kSlow }).click();
    await panel(page).getByText('node-17').waitFor();
    assert.equal(query(page).get('rank'), '43');
    assert.equal(query(page).get('step'), '1388');
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }));

  it('leads from an alert to its incident', () => visit('/alerts', async (page) => {
    const rows = page.getByRole('region', { name: 'All alerts' }).locator('tbody tr');
    assert.match((await rows.nth(0).innerText()), /critical[\s\S]*Rank 43/);
    await counted(rows.nth(1).getByRole('link'), 1, 'one that is of no incident');
    await accessible(page);
    await shot(page, 'alerts');
    await rows.nth(0).getByRole('link', { name: kIncident }).click();
    await page.getByRole('region', { name: 'The incident' }).waitFor();
  }));

  it('says what became of a menu that failed, and hands out Markdown as such', () => visit(`/incidents/${kIncident}`, async (page) => {
    const answer = page.getByRole('region', { name: 'The incident' });
    const choose = async (name) => {
      await answer.getByRole('button', { name: 'Take this with you' }).click();
      await answer.getByRole('menuitem', { name }).click();
    };
    await answer.waitFor();
    await page.evaluate(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.madeType = blob.type; return make(blob); }; });
    const [file] = await Promise.all([page.waitForEvent('download'), choose('Download as Markdown')]);
    assert.equal(file.suggestedFilename(), `${kIncident}.md`);
    assert.equal(await page.evaluate(() => window.madeType), 'text/markdown');
    held.world.down = true;
    try {
      await choose('Copy as Markdown');
      await answer.getByText('The server does not answer').waitFor();
      await counted(answer.getByRole('menu'), 0);
    } finally {
      held.world.down = false;
    }
  }));

  it('says which incident is not known', () => visit('/incidents/i-gone', async (page) => {
    await page.getByRole('alert').getByText('no incident "i-gone" is known').waitFor();
  }));

  it('shows early warnings on the fleet page and those of a job on its page', () => visit('/', async (page) => {
    const panel = page.getByRole('region', { name: 'Early warnings' });
    await panel.waitFor();
    await counted(panel.locator('li'), 2);
    await says(panel.locator('li').first(), /GPU 6 of node-02 \(rank 6 of vit-pretrain\): its thermal margin shrinks[\s\S]*look at fans/);
    await shot(page, 'fleet-warnings');
    await page.goto(held.world.url + jobPath(kSuspected));
    await panel.waitFor();
    await counted(panel.locator('li'), 1);
    await panel.getByRole('button', { name: 'evidence' }).click();
    await says(panel, /nvidia-smi -q -d TEMPERATURE -i GPU-6[\s\S]*Of 12 such warnings in simulation 9 came true in time/);
    await accessible(page);
    await shot(page, 'job-warning');
    await page.goto(held.world.url + jobPath(kHealthy));
    await page.getByRole('region', { name: 'No open verdict' }).waitFor();
    await counted(panel, 0);
  }));

  it('copies the next command as it is shown', () => visit(jobPath(kSlow), async (page) => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: /Copy the command: Drain/ }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'scontrol update nodename=node-17 state=drain reason=thermal');
  }, kOwnPage));

  it('selects the cell under a click and tells its values on hover', () => visit(jobPath(kSlow), async (page) => {
    await mapReady(page);
    const map = await page.locator('#heatmap').boundingBox();
    const at = { x: map.width - 60, y: 2 };
    await page.locator('#heatmap').hover({ position: at });
    await says(page.locator('.tip'), /rank 43, node-17, step 1,38\d\n\+1\d\d ms/);
    await shot(page, 'job-hover');
    await page.locator('#heatmap').click({ position: at });
    await panel(page).waitFor();
    assert.equal(query(page).get('rank'), '43');
  }));

  it('needs no mouse', () => visit('/', async (page) => {
    const link = page.getByRole('link', { name: kSlow });
    await link.waitFor();
    await link.focus();
    await page.keyboard.press('Enter');
    await mapReady(page);
    await page.locator('#heatmap').focus();
    await page.keyboard.press('ArrowUp'); // the first press starts on the worst rank, newest step
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await panel(page).getByText('node-17').waitFor();
    assert.equal(query(page).get('rank'), '43');
    assert.equal(query(page).get('step'), '1387');
    await shot(page, 'job-keyboard');
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('rank') === '0');
    await page.keyboard.press('Escape'); // rank -> step
    await page.getByRole('heading', { name: 'Slowest ranks in this step' }).waitFor();
    await page.keyboard.press('Escape'); // step -> job
    await panel(page).waitFor({ state: 'detached' });
    await page.keyboard.press('s');
    assert.equal(query(page).get('sort'), 'rank');
    await page.keyboard.press('t');
    await page.getByRole('table', { name: 'Ranks' }).waitFor();
    await page.keyboard.press('Escape'); // job -> fleet
    await page.getByRole('table', { name: 'Jobs, worst first' }).waitFor();
  }));

  it('restores everything from the address', () => visit(`${jobPath(kSlow)}?step=1300&rank=43&sort=host&last=400`, async (page) => {
    await panel(page).getByText('node-17').waitFor();
    await says(panel(page), /Rank 43 · step 1,300/);
    assert.equal(await page.getByLabel('sorted').inputValue(), 'host');
    assert.equal(await page.getByLabel('last').inputValue(), '400');
    await page.reload();
    await panel(page).getByText('node-17').waitFor();
    assert.match(page.url(), /step=1300&rank=43&sort=host&last=400/);
  }));

  it('goes back to an old step that a link asks for', () => visit(`${jobPath(kSlow)}?step=500&rank=9`, async (page) => {
    await page.getByText('Showing steps 400–599, not the newest.').waitFor();
    await panel(page).getByText('node-13').waitFor();
    await page.getByRole('button', { name: 'Go to the newest' }).click();
    await page.getByText('Showing steps').waitFor({ state: 'detached' });
    await page.locator('.keys').waitFor();
  }));

  it('has a table twin that turns pages and says what it leaves out', () => visit(`${jobPath(kSlow)}?view=table`, async (page) => {
    await page.getByRole('table', { name: 'Ranks' }).waitFor();
    const ranks = page.getByRole('region', { name: 'Ranks as a table' });
    await says(ranks, /1–32 of 64 ranks, worst first/);
    assert.equal(await ranks.locator('tbody tr').first().locator('td').first().innerText(), '43');
    await shot(page, 'job-table');
    await accessible(page);
    await ranks.getByRole('button', { name: 'Next' }).click();
    await says(ranks, /33–64 of 64 ranks/);
  }));

  it('hands out curl, CLI and CSV from the menu of a chart', () => visit(jobPath(kSlow), async (page) => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await mapReady(page);
    const menu = page.getByRole('button', { name: 'Menu of the heat map' });
    await menu.click();
    await accessible(page);
    await shot(page, 'job-menu');
    await page.getByRole('menuitem', { name: 'Copy as curl' }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `curl -s '${held.world.url}/api/jobs/${kSlow}/steps?last=200'`);
    await menu.click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: 'Download CSV' }).click()]);
    assert.equal(file.suggestedFilename(), `${kSlow}-ranks-by-step.csv`);
  }, kOwnPage));

  it('shows a hang with its unknown ranks hatched', () => visit(jobPath(kHung), async (page) => {
    await page.getByRole('region', { name: 'Verdict: hung, confirmed' }).waitFor();
    await mapReady(page);
    // A square in the rows of ranks 8-15, newest steps: two colours, and neither is white nor on the scale.
    const colours = await page.locator('#heatmap canvas').evaluate((canvas) => {
      const { data } = canvas.getContext('2d').getImageData(canvas.width - 120, 16, 16, 16);
      const seen = new Set();
      for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join());
      return [...seen];
    });
    assert.ok(colours.length > 1 && !colours.includes('255,255,255') && !colours.includes('0,34,78'), colours.join(' '));
    await shot(page, 'job-hung');
    await page.getByRole('button', { name: 'Show rank 21' }).click();
    await panel(page).getByText('AllReduce').waitFor();
    await accessible(page);
    await shot(page, 'job-hung-rank');
  }));

  it('says in a suspicion what would settle it', () => visit(jobPath(kSuspected), async (page) => {
    const card = page.getByRole('region', { name: 'Verdict: slow, suspected' });
    await card.getByText('would be decided by NVML metrics of node-31').waitFor();
    await mapReady(page);
    await accessible(page);
    await shot(page, 'job-suspected');
    const asks = card.getByRole('button', { name: /^(Which line\?|Profile (kernels|again))$/ });
    await counted(asks, 2, 'the ranks may have both: the server does not say');
    held.world.fixture.answers = ['stacks'];
    try {
      await page.reload();
      await card.getByText('would be decided by NVML metrics of node-31').waitFor();
      await counted(asks, 0, 'neither can be had of these ranks');
      delete held.world.fixture.answers;
      held.world.fixture.answersUnknown = ['detail', 'profiles', 'samples'];
      await page.reload();
      await card.getByText('whether its agent answers is not known: it reports to a gateway').waitFor();
      await counted(asks, 2, 'they may be asked');
    } finally {
      delete held.world.fixture.answers;
      delete held.world.fixture.answersUnknown;
    }
  }, kOwnPage));

  it('is quiet about a healthy job, whose name has a dot', () => visit(jobPath(kHealthy), async (page) => {
    await page.getByText('Healthy: 8 ranks, step 412 ms').waitFor();
    await mapReady(page);
    await accessible(page);
    await shot(page, 'job-healthy');
  }));

  it('shows hostile names as text', () => visit('/', async (page) => {
    await page.getByRole('link', { name: /onerror/ }).click();
    await page.getByText('Cannot tell: <script>').waitFor();
    await mapReady(page);
    await page.keyboard.press('t');
    await page.getByText('<b onmouseover=hacked()>node-0</b>').first().waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await counted(page.locator('main img, main script'), 0);
    await counted(page.getByText('\u202e'), 0);
    await shot(page, 'job-hostile');
  }));

  it('is the same in the dark', () => visit(`${jobPath(kSlow)}?step=1388&rank=43`, async (page) => {
    await panel(page).getByText('node-17').waitFor();
    await accessible(page);
    await shot(page, 'job-dark');
    await page.getByRole('button', { name: 'light' }).click();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
    await page.reload();
    await panel(page).getByText('node-17').waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  }, { colorScheme: 'dark' }));

  it('fits a narrow window', () => visit('/', async (page) => {
    await page.getByRole('link', { name: kSlow }).waitFor();
    await accessible(page);
    await shot(page, 'narrow-fleet');
    await page.getByRole('link', { name: kSlow }).click();
    await allReady(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400, 'no sideways scroll');
    await accessible(page);
    await shot(page, 'narrow-job');
    await page.locator('#heatmap').scrollIntoViewIfNeeded();
    await shot(page, 'narrow-charts');
    await page.getByRole('button', { name: 'Show rank 43' }).click();
    await panel(page).getByText('node-17').waitFor();
    await shot(page, 'narrow-panel');
  }, { viewport: { width: 400, height: 800 } }));

  it('follows a live job by its newest steps only, and stays still', () => visit(jobPath(kSlow), async (page) => {
    const picture = await allReady(page);
    const before = await page.locator('#heatmap').boundingBox();
    held.world.requests.length = 0;
    held.world.fixture.extraSteps += 3;
    await page.getByText('step 1,391').waitFor();
    await differs(page, '#heatmap', picture);
    assert.deepEqual(await page.locator('#heatmap').boundingBox(), before);
    const asked = held.world.requests.filter((path) => path.includes('/steps'));
    assert.ok(asked.length > 0 && asked.every((path) => path.includes('from=')), asked.join(' '));
    held.world.fixture.extraSteps = 0;
  }));

  it('keeps what it knew when the server is gone, and recovers', () => visit(jobPath(kSlow), async (page) => {
    await mapReady(page);
    held.world.down = true;
    try {
      await page.getByText(/No answer from the server since \d\d:\d\d:\d\d; showing what was known then\./).waitFor();
      await mapReady(page);
      assert.doesNotMatch(await page.locator('header').innerText(), /live/);
      await accessible(page);
      await shot(page, 'job-no-answer');
    } finally {
      held.world.down = false;
    }
    await page.getByText(/No answer from the server/).waitFor({ state: 'detached' });
  }));

  it('passes on what the server says about an unknown job', () => visit('/jobs/lama-70b', async (page) => {
    await page.getByText('no job "lama-70b". Did you mean llama-70b?').waitFor();
    await accessible(page);
    await shot(page, 'job-missing');
  }));

  it('draws 4,096 ranks by 400 steps and finds the odd one', () => visit('/none.txt', async (page) => {
    await (await fetch(`${held.world.url}/api/jobs/${kLarge}/steps?last=400`)).arrayBuffer();
    await page.goto(`${held.world.url}${jobPath(kLarge)}?last=400`);
    await mapReady(page);
    const map = await page.locator('#heatmap').boundingBox();
    await page.locator('#heatmap').hover({ position: { x: map.width - 60, y: 3 } });
    await says(page.locator('.tip'), /rank 3,000/);
    await shot(page, 'job-large');
  }));
});

describe('the page on a running server', { skip: kServer ? false : 'LOCKSTEP_URL is not set' }, () => {
  it('leads from the fleet to the guilty rank that the verdict names', async () => {
    const browser = await launch();
    try {
      const page = await openPage(browser);
      await page.goto(kServer);
      const row = page.locator('tr.health-slow, tr.health-hang').first();
      await row.waitFor({ timeout: 60_000 });
      await accessible(page);
      await shot(page, 'live-fleet');
      await row.getByRole('link').click();
      const card = page.locator('section.verdict').first();
      await card.waitFor();
      await mapReady(page);
      await accessible(page);
      await shot(page, 'live-job');
      const button = card.getByRole('button', { name: /^Show rank/ }).first();
      const rank = (await button.innerText()).replace(/\D/g, '');
      await button.click();
      await page.locator('aside.panel').getByRole('heading', { name: new RegExp(`^Rank ${Number(rank).toLocaleString('en')}( |$)`) }).waitFor();
      await page.locator('aside.panel').getByRole('heading', { name: 'Now' }).waitFor();
      assert.equal(new URL(page.url()).searchParams.get('rank'), rank);
      await accessible(page);
      await shot(page, 'live-rank');
      await page.keyboard.press('t');
      await page.getByRole('table', { name: 'Ranks' }).waitFor();
      await accessible(page);
      await shot(page, 'live-table');
      noErrors(page);
    } finally {
      await browser.close();
    }
  });
});
