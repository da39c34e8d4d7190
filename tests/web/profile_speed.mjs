// How long a frame of the kernel timeline takes with more slices than any answer of the server has: 64 ranks x 20,000. Not part of the
// tests: `node tests/web/profile_speed.mjs` after `npm run build` in web/.
import { launch, openPage } from './browser.mjs';
import { kSlow } from './fixture_data.mjs';
import { kLargeCapture } from './fixture_profile.mjs';
import { start } from './fixture_server.mjs';

const world = await start();
const browser = await launch();
const page = await openPage(browser);
page.setDefaultTimeout(120_000);
const begun = Date.now();
await page.goto(`${world.url}/jobs/${kSlow}/profiles/${kLargeCapture}`);
await page.locator('#kernels canvas').waitFor();
await page.waitForTimeout(1_000);  // it settles; taken off below
console.log(`64 x 20,000 slices on the screen ${Date.now() - begun - 1_000} ms after the address was entered`);

// Each key moves the view; what its frame costs is the time that scripts hold the page.
await page.evaluate(() => {
  window.frames_ = [];
  const draw = window.requestAnimationFrame;
  window.requestAnimationFrame = (body) => draw((at) => {
    const from = performance.now();
    body(at);
    window.frames_.push(performance.now() - from);
  });
});
for (const [what, keys] of [['pan, all of it in view', ['w', 's', 'w', 's', 'w', 's', 'w', 's']], ['zoom to 1/100', Array(9).fill('w')], ['pan there', Array(8).fill('d')]]) {
  await page.evaluate(() => { window.frames_.length = 0; });
  for (const key of keys) {
    await page.keyboard.press(key);
    await page.waitForTimeout(60);  // the pace of the keys: some frames each
  }
  const frames = (await page.evaluate(() => window.frames_)).sort((a, b) => a - b);
  console.log(`${what}: ${frames.length} frames, median ${frames[frames.length >> 1].toFixed(1)} ms, longest ${frames[frames.length - 1].toFixed(1)} ms`);
}
await browser.close();
await world.stop();
