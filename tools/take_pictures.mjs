// The pictures of README, from a real demo: ./dev pictures [FOLDER]. Starts `lockstep demo`, waits for the verdict on its slow GPU, drives
// the Chromium of the page tests and writes job.png and step.png. Which rank is slow is the seed's; how long everything takes is not.
import { spawn } from 'node:child_process';
import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { becomes, launch, openPage } from '../tests/web/browser.mjs';

const kRoot = fileURLToPath(new URL('..', import.meta.url));
const kFolder = process.argv[2] ?? join(kRoot, 'docs', 'pictures');
const kBytesMax = 200_000;
const kSeed = '5';
const kJob = 'demo-llama-70b';
const kRanks = 64;
const kStepsShown = 20;
const kRoundMs = 240_000;  // a round of the demo; a verdict that was missed comes again in the next

// The demo's page, once it says where that is.
async function startDemo() {
  const demo = spawn(join(kRoot, 'build', 'bin', 'lockstep'), ['demo', '--http', '127.0.0.1:0', '--seed', kSeed], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => demo.on('exit', resolve));
  const url = await new Promise((resolve, reject) => {
    createInterface({ input: demo.stdout }).on('line', (line) => {
      const said = /^ *page +(http:\S+)/.exec(line);
      if (said) resolve(said[1]);
    });
    ended.then((code) => reject(new Error(`the demo ended with ${code} before it said where its page is`)));
    demo.on('error', reject);
  });
  return { url, stop: () => (demo.kill('SIGINT'), ended) };
}

const answerOf = async (url) => (await fetch(url)).json();

// Asked again until it gives something.
async function eventually(look, what) {
  for (const until = Date.now() + kRoundMs; Date.now() < until;) {
    const seen = await look();
    if (seen) return seen;
    await new Promise((resolve) => setTimeout(resolve, 250));  // the interval of the poll
  }
  throw new Error(`not within ${kRoundMs / 1000} s: ${what}`);
}

async function write(page, name) {
  const path = join(kFolder, name);
  await page.screenshot({ path });
  const { size } = await stat(path);
  if (size > kBytesMax) throw new Error(`${path} has ${size} bytes (limit ${kBytesMax})`);
  console.log(`${path}: ${Math.round(size / 1000)} kB`);
}

// A canvas with more than its ground.
async function drawn(page, selector) {
  const canvas = page.locator(`${selector} canvas`);
  await canvas.waitFor();
  const hasMore = () => canvas.evaluate((one) => {
    const { data } = one.getContext('2d').getImageData(0, 0, one.width, one.height);
    return data.some((value, at) => value !== data[at % 4]);
  });
  if (!await becomes(hasMore, Boolean)) throw new Error(`nothing is drawn in ${selector}`);
}

// While the slow GPU is named, with its cause, and some steps have shown it. The page is there before, as whoever looks on has it.
async function jobPage(browser, url) {
  const page = await openPage(browser, { viewport: { width: 1360, height: 1000 } });
  await page.goto(`${url}/jobs/${kJob}`);
  const verdict = page.getByRole('region', { name: /^Verdict: slow, confirmed/ }).filter({ hasText: 'GPU slowed by heat' });
  await verdict.waitFor({ timeout: kRoundMs });
  await eventually(() => slowSteps(url).then((steps) => steps >= kStepsShown), `${kStepsShown} steps with the slow GPU`);
  await drawn(page, '#heatmap');
  await write(page, 'job.png');
  await page.close();
}

async function slowSteps(url) {
  const { verdicts } = await answerOf(`${url}/api/jobs/${kJob}/why`);
  const slow = verdicts.find((one) => one.culprit.layer === 'gpu' && one.state === 'confirmed');
  return slow ? slow.through_step - slow.since_step : 0;
}

// The newest step that is known in detail and had the slow GPU in it.
async function tracedStep(url) {
  const { verdicts } = await answerOf(`${url}/api/jobs/${kJob}/why`);
  const slow = verdicts.find((one) => one.culprit.layer === 'gpu');
  const { steps } = await answerOf(`${url}/api/jobs/${kJob}/traced?limit=500`);
  return slow && steps.find(({ step, ranks }) => step > slow.since_step && step <= slow.through_step && ranks === kRanks)?.step;
}

async function stepPage(browser, url) {
  const step = await eventually(() => tracedStep(url), 'a step in detail with the slow GPU in it');
  const page = await openPage(browser, { viewport: { width: 1200, height: 860 } });
  await page.goto(`${url}/jobs/${kJob}/steps/${step}`);
  await page.getByRole('heading', { name: /^Rank \d+ .* made \d+ ranks wait/ }).waitFor();
  await drawn(page, '#timeline');
  await write(page, 'step.png');
  await page.close();
}

await mkdir(kFolder, { recursive: true });
const demo = await startDemo();
try {
  const browser = await launch();
  try {
    await jobPage(browser, demo.url);
    await stepPage(browser, demo.url);
  } finally {
    await browser.close();
  }
} finally {
  await demo.stop();
}
