// The fleet page: numbers, filters that the address holds, a phone, a proxy's prefix; and the page of series.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { accessible, counted, says, shot } from './browser.mjs';
import { kOwnPage, query } from './canned.mjs';
import { kHung, kSlow } from './fixture_data.mjs';
import { fits } from './node_pages.mjs';
import { proxy } from './proxy.mjs';

const kPhone = { viewport: { width: 390, height: 844 } };

export function fleetPages(held) {
  const { visit } = held;
  it('has the fleet in numbers, and filters that the address holds', () => visit('/', async (page) => {
    const numbers = page.locator('dl.figures');
    await numbers.getByText('4', { exact: true }).waitFor();
    assert.match((await numbers.innerText()).replace(/\s+/g, ' '), /jobs 4 running, of 6 known GPUs 312 14 idle ranks 124 on 40 nodes, 1 silent open verdicts 3 lost in 24 h 21\.3 GPU-hours/);
    const cost = page.getByRole('region', { name: 'What Lockstep itself costs' });
    assert.match(await cost.innerText(), /Agents take 0\.31 of 5,120 cores on 39 hosts/);
    await cost.getByText('1 thing not known').click();
    assert.match(await cost.innerText(), /node-12: number of cores unknown/);
    const rows = page.locator('tbody tr');
    await counted(rows, 6);
    await page.getByLabel('host').fill('node-17');
    await page.getByText('2 of 6 jobs').waitFor();
    assert.equal(query(page).get('host'), 'node-17');
    await page.getByLabel('health').selectOption('slow');
    await page.getByText('1 of 6 jobs').waitFor();
    await accessible(page);
    await page.reload();
    await page.getByRole('link', { name: kSlow }).waitFor();
    await counted(rows, 1);
    assert.equal(await page.getByLabel('health').inputValue(), 'slow');
    await page.getByLabel('cause').selectOption('ecc');
    await page.getByText('None of 6 jobs is like that.').waitFor();
    await shot(page, 'fleet-none');
    await page.getByRole('button', { name: 'Show all' }).click();
    await page.getByText('6 of 6 jobs').waitFor();
    assert.equal(new URL(page.url()).search, '');
  }));

  it('lists the services, and says how one comes to be there; an address that is none leads to the pages', () => visit('/services', async (page) => {
    const list = page.getByRole('region', { name: 'Services' });
    await says(list, /1 of 1 service that sent spans or metrics/);
    await accessible(page);
    await shot(page, 'services');
    await list.getByRole('link').click();
    await page.getByRole('navigation', { name: 'Where you are' }).getByRole('link', { name: 'Services' }).click();
    await list.waitFor();
    held.world.fixture.empty = true;
    try {
      await page.reload();
      await page.getByRole('heading', { name: 'No services yet.' }).waitFor();
      await accessible(page);
      await shot(page, 'services-empty');
    } finally {
      held.world.fixture.empty = false;
    }
    await page.goto(new URL('/nowhere', page.url()).href);
    await page.getByRole('heading', { name: 'There is no page /nowhere.' }).waitFor();
    await accessible(page);
    await page.getByRole('main').getByRole('link', { name: 'services' }).click();
    await list.waitFor();
  }));

  it('fits a phone, as does the page of series', () => visit('/', async (page) => {
    await page.getByText('6 of 6 jobs').waitFor();
    await fits(page, 'the fleet');
    await accessible(page);
    await shot(page, 'fleet-phone');
    await page.goto(new URL('/cardinality', page.url()).href);
    await page.getByText('OTLP from node-17, lockstep-agent, job llama-70b, rank 43').waitFor();
    await fits(page, 'the series');
    await accessible(page);
    await shot(page, 'cardinality-phone');
  }, kPhone));

  it('works behind a proxy that serves it under a prefix: page, assets, API and deep links', () => visit('/none.txt', async (page) => {  // nothing of the page comes from beside the prefix
    const front = await proxy(new URL('/', page.url()).href, '/lockstep');
    try {
      const beside = [];
      page.on('response', (answer) => { if (answer.url().startsWith(front.url) && answer.status() >= 400) beside.push(answer.url()); });
      await page.goto(`${front.url}/lockstep/`);
      await page.getByRole('link', { name: kSlow }).click();
      await page.getByRole('region', { name: 'Verdict: slow, confirmed' }).waitFor();
      assert.equal(new URL(page.url()).pathname, `/lockstep/jobs/${kSlow}`);
      await page.goto(`${front.url}/lockstep/jobs/${kSlow}/steps/1384`);
      await page.getByRole('heading', { name: /step 1,384/i }).waitFor();
      await page.goto(`${front.url}/lockstep/nodes/node-3.rack2/`);
      await page.getByText('6 idle').waitFor();
      await page.goto(`${front.url}/lockstep/docs/runbooks/ecc`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.goto(`${front.url}/lockstep/nodes/node-3.rack2/`);
      await page.getByRole('link', { name: 'Fleet' }).click();
      await page.getByText('6 of 6 jobs').waitFor();
      assert.equal(new URL(page.url()).pathname, '/lockstep/');
      assert.deepEqual(beside.filter((url) => !/\/api\//.test(url)), [], 'every file was found');
      assert.ok(beside.every((url) => url.startsWith(`${front.url}/lockstep/`)), `asked beside the prefix: ${beside}`);
    } finally {
      await front.stop();
    }
  }, kOwnPage));

  it('marks who stands still in the heat map, and says what it is sorted by', () => visit(`/jobs/${kHung}`, async (page) => {
    await page.locator('.row-mark').first().waitFor();
    await says(page.locator('.row-mark').first(), /■ 21/);
    await page.getByText('■ rank 21: stands still.').waitFor();
    await page.getByText('Sorted: who is named by a verdict').waitFor();
    await shot(page, 'job-hang-map');
  }));
}
