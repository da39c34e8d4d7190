// The pages of nodes and GPUs: faulty, healthy with idle GPUs, silent (a gap), with nothing to tell (empty), not known (error).
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { accessible, counted, says, shot } from './browser.mjs';
import { drawn, query } from './canned.mjs';
import { kHostile, kSlow } from './fixture_data.mjs';
import { kBareNode, kFaultyNode, kHealthyNode, kSilentNode } from './fixture_node.mjs';

const nodePath = (host) => `/nodes/${encodeURIComponent(host)}${host.includes('.') ? '/' : ''}`;
const kPhone = { viewport: { width: 390, height: 844 } };
export const fits = async (page, what) => {
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(wide <= room, `${what} is ${wide} wide in ${room}`);
};

export function nodePages({ visit }) {
  it('leads from a verdict to its node, and from there to the GPU and back to the rank', () => visit(`/jobs/${kSlow}`, async (page) => {
    await page.getByRole('region', { name: 'Verdict: slow, confirmed' }).getByRole('link', { name: kFaultyNode }).click();
    await page.getByRole('heading', { name: /makes all 64 ranks wait/ }).waitFor();
    const runs = page.getByRole('region', { name: 'Who runs here' });
    await says(runs, /8 GPUs, 0 idle[^]*llama-70b, rank 43[^]*anna/);
    await drawn(page, '.lane:nth-child(3) .plot');
    const lanes = page.getByRole('region', { name: 'Over time' });
    await says(lanes, /GPU 3 differs: GPU clock 1,1\d\d MHz \(the others 1,97\d MHz\), GPU temperature 9\d/);
    await says(lanes, /own time beyond its peers\s*llama-70b\s*rank 43 1(1|2)\d ms\s*median of 8/);
    await lanes.getByRole('img', { name: /GPU temperature over time, 8 lines. Newest: GPU 3 9\d.* °C/ }).waitFor();
    await says(page.getByRole('region', { name: 'What the hardware said' }), /gpu\.xid 79 3 times[^]*GPU fell off the bus[^]*<b>mlx5_0<\/b>/);
    await counted(page.getByRole('region', { name: 'Verdicts here' }).locator('tbody tr'), 2);
    await accessible(page);
    await shot(page, 'node-faulty');
    await page.evaluate(() => window.scrollTo(0, 100_000));
    await shot(page, 'node-faulty-below');
    await lanes.getByRole('button', { name: /GPU 3 1,1\d\d MHz/ }).click();
    await page.getByRole('heading', { name: 'GPU 3', exact: true }).waitFor();
    assert.equal(new URL(page.url()).pathname, '/gpus/GPU-5b1e0f2a-43');
    await page.getByText('1 GPU, 0 idle').waitFor();
    await page.keyboard.press('t');
    await page.getByRole('region', { name: 'The same numbers' }).waitFor();
    assert.equal(query(page).get('view'), 'table');
    await shot(page, 'gpu-faulty');
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: kFaultyNode, exact: true }).waitFor();
    await page.getByRole('link', { name: 'See it in llama-70b' }).click();
    await page.getByRole('heading', { name: /Rank 43/ }).first().waitFor();
  }));

  it('says of a healthy node who is idle, of a silent one since when, and of a bare one what is missing', () => visit(nodePath(kHealthyNode), async (page) => {
    await page.getByRole('heading', { name: `Nothing is open on ${kHealthyNode}: no verdict this week.` }).waitFor();
    await says(page.getByRole('region', { name: 'Who runs here' }), /8 GPUs, 6 idle[^]*○ idle\s*nobody/);
    await page.locator('.lane canvas').first().waitFor();
    await accessible(page);
    await shot(page, 'node-healthy');
    for (const [host, words, name] of [[kSilentNode, /Cannot tell: nothing was heard of node-9/, 'node-silent'], [kBareNode, /No GPU is known here: the agent reads none/, 'node-bare'],
      ['node-99', /no node "node-99" is known/, 'node-unknown']]) {
      await page.goto(new URL(nodePath(host), page.url()).href);
      await page.getByText(words).first().waitFor();
      if (host === kSilentNode) await page.locator('.lane canvas').first().waitFor();
      if (host === kBareNode) await page.getByText('Nothing was reported in the last 15 min').waitFor();
      await accessible(page);
      await shot(page, name);
    }
    await page.goto(new URL(nodePath(kHostile), page.url()).href);
    await page.getByText('No GPU is known here').waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }));

  it('lists nodes worst first, keeps the filter in the address, and fits a phone', () => visit('/nodes', async (page) => {
    await page.getByRole('link', { name: kFaultyNode }).waitFor();
    await says(page.locator('tbody tr').first(), /▲ named\s*node-17/);
    await accessible(page);
    await fits(page, 'the list of nodes');
    await shot(page, 'nodes-phone');
    await page.getByLabel('host contains').fill('rack');
    await page.getByText('1–1 of 1 nodes').waitFor();
    assert.equal(query(page).get('host'), 'rack');
    await page.goto(new URL(nodePath(kFaultyNode), page.url()).href);
    await page.locator('.lane canvas').first().waitFor();
    await fits(page, 'the node');
    await shot(page, 'node-phone');
  }, kPhone));
}
