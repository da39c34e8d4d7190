// The page of logs: by filter, by keyboard, following, older ones, hostile, refused, empty, on a phone.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { accessible, counted, says, shot } from './browser.mjs';
import { kOwnPage, query } from './canned.mjs';
import { kSlow } from './fixture_data.mjs';
import { fits } from './node_pages.mjs';

const kPhone = { viewport: { width: 390, height: 844 } };

export function logPages(held) {
  const { visit } = held;
  const rows = (page) => page.locator('.log-row');

  it('leads from a job to its logs, and from a record to its rank', () => visit(`/jobs/${kSlow}`, async (page) => {
    await page.getByRole('link', { name: 'logs', exact: true }).click();
    await counted(rows(page), 200);
    assert.equal(query(page).get('job'), kSlow);
    await says(rows(page).first(), /info\s*rank 43 · node-17\s*step 1299 took|warn\s*rank 43/);
    await page.getByRole('button', { name: 'Older' }).click();
    await counted(rows(page), 301);
    await page.getByRole('button', { name: 'Older' }).waitFor({ state: 'detached' });
    await page.getByLabel('severity').selectOption('warn');
    await counted(rows(page), 1);
    await says(rows(page), /▲ warn\s*rank 43 · node-17\s*NCCL WARN timed out waiting for rank 5/);
    await accessible(page);
    await page.reload();
    await counted(rows(page), 1);
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await says(page.locator('.log-detail'), /llama-70b, rank 43[^]*comm\s*0x7f[^]*service\.name\s*trainer/);
    await accessible(page);
    await shot(page, 'logs-open');
    await page.getByRole('link', { name: 'llama-70b, rank 43' }).click();
    await page.getByRole('heading', { name: /Rank 43/ }).first().waitFor();
    await page.getByRole('link', { name: 'What it logged' }).click();
    assert.equal(query(page).get('rank'), '43');
    await page.keyboard.press('Escape');
    await page.getByRole('heading', { name: /Rank 43/ }).first().waitFor();
  }));

  it('shows what comes while somebody looks, and stands still when it is told to', () => visit('/logs', async (page) => {
    await counted(rows(page), 200);
    await page.getByText('● following').waitFor();
    await accessible(page);
    await shot(page, 'logs');
    held.world.fixture.logs.say({ rank: 7, severity: 21, body: 'came just now' });
    await says(rows(page).first(), /■ fatal\s*llama-70b · rank 7 · node-12\s*came just now/);
    await counted(page.getByText('came just now'), 1);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await counted(page.locator('main img'), 0);
    await page.keyboard.press('f');
    await page.getByText('standing still').waitFor();
    assert.equal(query(page).get('follow'), '0');
    await page.keyboard.press('/');
    await page.keyboard.type('fell off');
    await counted(rows(page), 1);
    await says(rows(page), /■ error\s*node-17\s*gpu\.xid code=79 text=GPU fell off the bus/);
    await page.getByLabel('text').fill('no such words');
    await page.getByText('Nothing was logged in the last 60 min for “no such words”.').waitFor();
    await accessible(page);
    await shot(page, 'logs-nothing');
    await page.getByRole('button', { name: 'Clear the filter' }).click();
    await counted(rows(page), 200);
    await page.getByLabel('text').fill('(refused)');
    await page.getByRole('alert').getByText('grep is refused here').waitFor();
    await accessible(page);
    held.world.fixture.logs.records.pop();
  }, kOwnPage));

  it('fits a phone, and says where nothing is logged at all', () => visit('/logs?severity=warn', async (page) => {
    await counted(rows(page), 2);
    await rows(page).first().getByRole('button').click();
    await page.locator('.log-detail').waitFor();
    await fits(page, 'the logs');
    await accessible(page);
    await shot(page, 'logs-phone');
    held.world.fixture.empty = true;
    try {
      await page.goto(new URL('/logs', page.url()).href);
      await page.getByText('Agents report what the hardware says by themselves').waitFor();
      await fits(page, 'no logs');
      await shot(page, 'logs-empty-phone');
    } finally {
      held.world.fixture.empty = false;
    }
  }, kPhone));
}
