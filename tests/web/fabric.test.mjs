// The page of the fabric and the page of a path in a real browser, against canned answers of a fabric with 100,000 GPUs; with LOCKSTEP_URL
// set, those of that running server instead. Run by `npm run test:page` in web/ after `npm run build`.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { accessible, counted, launch, noErrors, openPage, says, shot } from './browser.mjs';
import { canned, query } from './canned.mjs';
import { kSlow, kSuspected } from './fixture_data.mjs';

const kServer = process.env.LOCKSTEP_URL;
const region = (page, name) => page.getByRole('region', { name, exact: true });
const box = (page, name) => page.locator('.graph-node', { has: page.getByRole('button', { name }) });

describe('the fabric on canned answers', { skip: kServer ? 'LOCKSTEP_URL is set' : false }, () => {
  const held = canned();
  const { visit } = held;

  it('says first what is wrong, then shows what the worst job depends on, small enough to read', () => visit('/', async (page) => {
    await page.getByRole('link', { name: 'fabric' }).click();
    await page.getByRole('heading', { name: '3 ports are in trouble, first spine-3:Ethernet8: it went down; 2 cables are not where the file says.' }).waitFor();
    await says(region(page, 'What is wrong in the fabric'), /12,500 hosts[\s\S]*100,000 GPUs[\s\S]*32 spines/);
    await page.getByRole('heading', { name: `What depends on what, around job ${kSlow}?` }).waitFor();
    const first = (await page.locator('.graph-node.ill button:first-child').allInnerTexts()).map((words) => words.replace(/\s+/g, ' '));
    assert.deepEqual(first, ['▲ job llama-70b', '▲ rank 43', '▲ gpu node-17 17-3', '▲ host node-17'], 'the ill stand first of their column, named by their host');
    assert.ok(await page.locator('.graph-node').count() <= 7 * 12, 'a column has a dozen boxes');
    await says(region(page, 'Graph'), /32 of their neighbours left out/);
    const rows = await region(page, 'Ports').locator('tbody tr').allInnerTexts();
    assert.match(rows[0], /spine-3\s+Ethernet8\s+▲ went down/);
    assert.match(rows[1], /leaf-5\s+Ethernet50[\s\S]*▲ 880\s+41,000\s+2,200\s+3\.1 MB\s+46 GB\/s\s+92 %/);
    assert.match(rows[2], /leaf-9\s+Ethernet52\s+–\s+▲ 120/);
    await says(region(page, 'Differences').locator('tbody tr').first(), /node-13:mlx5_2\s+another port\s+leaf-2:Ethernet1\/9\s+leaf-2:Ethernet1\/14/);
    await says(region(page, 'Changes'), /node-13:mlx5_2\s+leaf-2:Ethernet1\/9\s+leaf-2:Ethernet1\/14/);
    await accessible(page);
    await shot(page, 'fabric');
  }));

  it('focuses by a click, follows further by a plus, and the address restores both', () => visit('/fabric?focus=leaf-5', async (page) => {
    await page.getByRole('heading', { name: 'What depends on what, around leaf leaf-5?' }).waitFor();
    await says(region(page, 'Graph'), /Who depends on leaf leaf-5\?\s+8 GPUs on 8 hosts\.[\s\S]*llama-70b\s+8 of 64\s+100 %\s+5, 13, 21/);
    await page.getByRole('heading', { name: 'Which ports of leaf-5 are worst?' }).waitFor();
    await counted(region(page, 'Ports').locator('tbody tr'), 2);
    await counted(page.locator('path.edge.bad'), 3, 'lines over ports in trouble are marked');
    await box(page, 'nic node-0:mlx5_5').locator('button').first().click();
    await page.getByRole('heading', { name: 'around nic node-0:mlx5_5?' }).waitFor();
    await page.goBack();
    await page.getByRole('heading', { name: 'around leaf leaf-5?' }).waitFor();
    await counted(box(page, 'rank vit-pretrain'), 0);
    const before = await page.locator('.graph-node').count();
    await page.getByRole('button', { name: 'Follow node-0 further' }).click();
    await page.waitForFunction((old) => document.querySelectorAll('.graph-node').length > old, before);
    assert.deepEqual(query(page).getAll('open'), ['host:node-0']);
    const names = await page.locator('.graph-node').allInnerTexts();
    await page.reload();
    await page.waitForFunction((wanted) => document.querySelectorAll('.graph-node').length === wanted, names.length);
  }));

  it('draws who waited for whom and what changed, and says so in the table', () => visit(`/fabric?focus=rank:${kSlow}/43`, async (page) => {
    await page.getByText('Longest wait: llama-70b/44 for llama-70b/43, 12.4 s in ten minutes.').waitFor();
    await counted(page.locator('path.edge-waits-for'), 7);
    assert.equal(await page.locator('path.edge-waits-for').first().getAttribute('marker-end'), 'url(#awaited)');
    await counted(page.locator('path.edge-changed-at'), 1);
    await page.keyboard.press('t');
    await says(page.getByRole('row', { name: /llama-70b\/44/ }), /waits-for \(12\.4 s\) llama-70b\/43/);
    await page.keyboard.press('t');
    await box(page, 'version driver 570.124.06').locator('button').first().click();
    await page.getByRole('heading', { name: 'around version driver 570.124.06?' }).waitFor();
    await accessible(page);
  }));

  it('needs no mouse', () => visit(`/fabric?focus=rank:${kSlow}/43`, async (page) => {
    await page.getByRole('button', { name: 'rank 43' }).focus();
    await page.keyboard.press('ArrowRight');
    assert.match(await page.evaluate(() => document.activeElement.title), /^gpu GPU-17-3: Rank 43/);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('focus') === 'gpu:GPU-17-3');
    await page.keyboard.press('t');
    await page.getByRole('table', { name: 'Parts of the graph' }).waitFor();
    await page.keyboard.press('x');
    await page.getByRole('heading', { name: 'Which switches are worst?' }).waitFor();
    await page.keyboard.press('Escape');
    assert.equal(query(page).get('focus'), null);
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: kSlow }).waitFor();
  }));

  it('finds what is typed, and passes on what the server says of what is not there', () => visit('/fabric', async (page) => {
    await page.getByRole('textbox', { name: 'focus' }).fill('lef-5');
    await page.keyboard.press('Enter');
    await page.getByText('no component "lef-5". Did you mean leaf-5?').waitFor();
    await page.getByRole('textbox', { name: 'focus' }).fill('spine-3');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'around spine spine-3?' }).waitFor();
    await says(region(page, 'Graph'), /[\d,]{5,} of their neighbours left out/);
    await page.getByRole('textbox', { name: 'at', exact: true }).fill('soon');
    await page.getByText('such as -5m or 2026-11-15T22:00:00Z').waitFor();
    await page.getByRole('textbox', { name: 'at', exact: true }).fill('2026-01-15T03:00:00Z');
    const asked = page.waitForRequest((one) => one.url().includes('/api/graph?focus=spine-3') && one.url().includes('at=1768446000000000000'));
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('at') === '1768446000000000000');
    await asked;
  }));

  it('says so where nothing is known', async () => {
    held.world.fixture.empty = true;
    try {
      await visit('/fabric', (page) => page.getByRole('alert').getByText('no such path').waitFor());
    } finally {
      held.world.fixture.empty = false;
    }
  });

  it('leads from a verdict to the way between its ranks, every hop with how it is known', () => visit(`/jobs/${kSuspected}`, async (page) => {
    await page.getByRole('link', { name: 'The way from rank 6 to rank 15' }).click();
    await page.getByRole('heading', { name: 'Over the network, by 1 of 8 equal paths, not observed.' }).waitFor();
    assert.deepEqual([...query(page)], [['a', '6'], ['b', '15'], ['job', kSuspected]]);
    const hops = await region(page, 'Hops').locator('.hops > li').allInnerTexts();
    assert.equal(hops.length, 13);
    assert.match(hops[0], /rank 6\s+node-31 gpu2\s+agent/);
    assert.match(hops[3], /mlx5_2\s+Ethernet1\/16\s+LLDP/);
    assert.match(hops[6], /spine-0\s+13 %[\s\S]*4 more/);
    await page.getByRole('button', { name: '4 more' }).first().click();
    await counted(page.locator('.hops > li').nth(6).locator('.hop'), 8);
    await page.goBack();
    await page.getByRole('link', { name: 'The way from rank 6 to rank 15' }).waitFor();
  }));

  it('leads from a verdict to the place in the network that it names', () => visit(`/jobs/${kSuspected}`, async (page) => {
    const card = page.getByRole('region', { name: 'Verdict: slow, suspected' });
    await says(card.locator('.verdict-head'), /at link leaf-5:Ethernet50/);
    await card.getByRole('link', { name: 'link leaf-5:Ethernet50' }).click();
    await page.getByRole('heading', { name: 'What depends on what, around link leaf-5:Ethernet50 - spine-1:Ethernet6?' }).waitFor();
    assert.deepEqual([...query(page)], [['focus', 'link:leaf-5:Ethernet50']]);
    await region(page, 'Graph').getByRole('heading', { name: 'Who depends on link' }).waitFor();
  }));

  it('asks the dearest question once', () => visit('/sle', async (page) => {
    const isPorts = (url) => url.startsWith('/prometheus/api/v1/query') && !url.includes('query_range');
    const before = held.world.requests.filter(isPorts).length;
    await page.goto(`${held.world.url}/fabric`);
    await region(page, 'Ports').locator('tbody tr').first().waitFor();
    assert.equal(held.world.requests.filter(isPorts).length - before, 2, 'the worst of all, then their values');
  }));

  it('names the port that stands out, beside its siblings and the pairs beside it', () => visit(`/fabric/path?a=4&b=60&job=${kSlow}`, async (page) => {
    await page.getByRole('heading', { name: 'Over the network, by 1 of 8 equal paths' }).waitFor();
    await page.getByRole('textbox', { name: 'from' }).fill('5');
    await page.getByRole('textbox', { name: 'to' }).fill('61');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'leaf-5:Ethernet50, on one of 8 equal ways, stands out: drops out 880/s, its siblings 0.' }).waitFor();
    const lines = await page.locator('.hops > li').nth(5).locator('.hop').allInnerTexts();
    assert.match(lines[0], /▲ Ethernet50\s+Ethernet6/, 'the way in trouble is the first');
    await says(page.locator('.hops > li').nth(6).locator('.hop').first(), /spine-1/, 'and its spine stands beside it');
    const row = await region(page, 'Ports on the way').locator('tbody tr', { hasText: 'leaf-5:Ethernet50' }).first().innerText();
    assert.match(row, /13 %\s+not observed\s+46 GB\/s \(13\.2 GB\/s\)[\s\S]*▲ 880\/s \(0\)[\s\S]*▲ 41,000\/s \(9\/s\)[\s\S]*▲ 2,200\/s \(0\)[\s\S]*▲ 3\.1 MB \(40 kB\)/);
    const pairs = region(page, 'Sibling pairs');
    await pairs.getByText('It is this pair alone: on 7 pairs beside it nothing stands out.').waitFor();
    await says(pairs.locator('tbody tr').first(), /node-12 gpu5 → node-19 gpu5\s+▲ 1/);
    await accessible(page);
    await shot(page, 'path');
    await page.getByRole('link', { name: 'node-12 gpu0 → node-19 gpu0' }).click();
    await page.getByText('No port on it stands out from its siblings.').waitFor();
    await page.getByRole('button', { name: 'the way back' }).click();
    await page.waitForFunction(() => new URL(location.href).searchParams.get('a') === 'node-19:gpu0');
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: /ports are in trouble/ }).waitFor();
  }));

  it('restores a path of the past from the address, in the dark', () => visit(`/fabric/path?a=43&b=5&job=${kSlow}&at=1768446000000000000`, async (page) => {
    await page.getByRole('heading', { name: 'node-17:mlx5_3 stands out: errors 11.5/s, its siblings 0.' }).waitFor();
    await page.locator('header').getByText('as it was at 03:00:00').waitFor();
    assert.equal(await page.getByRole('textbox', { name: 'at', exact: true }).inputValue(), '2026-01-15T03:00:00Z');
    assert.ok(held.world.requests.some((path) => path.startsWith('/api/fabric/path?a=43') && path.includes('at=1768446000000000000')));
    await accessible(page);
    await shot(page, 'path-dark');
    await page.goto(`${held.world.url}/fabric/path?a=0&b=7&job=${kSlow}`);
    await page.getByRole('heading', { name: 'Over NVLink, within one domain.' }).waitFor();
    await counted(region(page, 'Sibling pairs'), 0);
    await page.goto(`${held.world.url}/fabric/path?a=node-12000:gpu0&b=node-0:gpu0`);
    await page.getByText('Whether a port on it stands out is not known: nobody reports their counters.').waitFor();
    await counted(region(page, 'Sibling pairs'), 0);
    await page.goto(`${held.world.url}/fabric/path?a=0&b=node-1:gpu9`);
    await page.getByText(/no GPU "0"/).waitFor();
    await page.goto(`${held.world.url}/fabric/path`);
    await page.getByRole('heading', { name: /^Which way do two GPUs talk\?/ }).waitFor();
  }, { colorScheme: 'dark' }));

  it('fits a narrow window', () => visit('/fabric?focus=leaf-5', async (page) => {
    await page.locator('.graph-node.focus').waitFor();
    const focus = await page.locator('.graph-node.focus').boundingBox();
    assert.ok(focus.x >= 0 && focus.x + focus.width <= 400, 'the focus is in sight');
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400, 'no sideways scroll');
    await shot(page, 'narrow-fabric');
    await page.goto(`${held.world.url}/fabric/path?a=5&b=61&job=${kSlow}`);
    await page.locator('.hops').waitFor();
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400, 'no sideways scroll');
    await shot(page, 'narrow-path');
  }, { viewport: { width: 400, height: 800 } }));
});

describe('the fabric of a running server', { skip: kServer ? false : 'LOCKSTEP_URL is not set' }, () => {
  it('shows what its worst job depends on, and the way between two of its ranks', async () => {
    const [job] = (await (await fetch(`${kServer}/api/jobs`)).json()).jobs;
    const browser = await launch();
    try {
      const page = await openPage(browser);
      await page.goto(`${kServer}/fabric`);
      const sentence = region(page, 'What is wrong in the fabric').locator('h2');
      await sentence.waitFor();
      if (!/^Nothing is known/.test(await sentence.innerText())) {
        await page.locator('.graph-node.focus', { hasText: job.job_id.slice(0, 12) }).waitFor();
        await accessible(page);
        await shot(page, 'live-fabric');
        await page.goto(`${kServer}/fabric/path?a=0&b=${job.world_size - 1}&job=${encodeURIComponent(job.job_id)}`);
        await region(page, 'Hops').or(page.getByRole('alert')).first().waitFor();
        await shot(page, 'live-path');
      }
      noErrors(page);
    } finally {
      await browser.close();
    }
  });
});
