// Chromium, screenshots and the accessibility check, for the page tests.
import { createRequire } from 'node:module';
import { mkdir, readFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import assert from 'node:assert/strict';

// The packages live in web/node_modules; the tests live outside web/.
const require = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = require('playwright-core');

const kArtifacts = process.env.LOCKSTEP_ARTIFACTS ?? fileURLToPath(new URL('../../artifacts/web/', import.meta.url));
const kChromium = process.env.LOCKSTEP_CHROMIUM ?? '/usr/bin/chromium-headless-shell';

// A later --disable-features takes the place of an earlier one, so what Playwright switches off is here too. Ours: each window of Chromium
// would load a page of its own for suggestions in its address line, and a renderer for a page that nobody has asked for yet; half of the
// browser's processor time.
const kFeaturesOff = [
  'AutoDeElevate', 'AvoidUnnecessaryBeforeUnloadCheckSync', 'BoundaryEventDispatchTracksNodeRemoval', 'DestroyProfileOnBrowserClose',
  'DialMediaRouteProvider', 'GlobalMediaControls', 'HttpsUpgrades', 'LensOverlay', 'MediaRouter', 'OptimizationHints', 'PaintHolding',
  'RenderDocument', 'ThirdPartyStoragePartitioning', 'Translate',
  'SpareRendererForSitePerProcess', 'WebUIOmniboxAimPopup', 'WebUIOmniboxFullPopup', 'WebUIOmniboxPopup',
];

// As long as a machine that is busy with everything else may take; only what never happens takes so long.
const kPatienceMs = 60_000;

export function launch() {
  assert.ok(existsSync(kChromium), `no browser at ${kChromium}: install chromium-headless-shell, or name one in LOCKSTEP_CHROMIUM`);
  return chromium.launch({
    executablePath: kChromium,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', `--disable-features=${kFeaturesOff.join(',')}`],
  });
}

// A fresh page that remembers every error its scripts made; check them with noErrors().
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 }, locale: 'en-GB', timezoneId: 'UTC', colorScheme: 'light', reducedMotion: 'reduce', ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(kPatienceMs);
  page.errors = [];
  page.on('pageerror', (error) => page.errors.push(String(error)));
  page.on('console', (message) => {
    // The browser reports a refused connection or a 404 by itself; the tests that cause them look at the page instead.
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) page.errors.push(message.text());
  });
  return page;
}

export function noErrors(page) {
  assert.deepEqual(page.errors, []);
}

export async function shot(page, name) {
  await mkdir(kArtifacts, { recursive: true });
  await page.screenshot({ path: join(kArtifacts, `${name}.png`) });
}

// What look() gives once it is right. It is asked again and again.
export async function becomes(look, isRight) {
  const until = Date.now() + kPatienceMs;
  for (;;) {
    const seen = await look();
    if (isRight(seen) || Date.now() > until) return seen;
    await new Promise((resolve) => setTimeout(resolve, 25));  // the interval of the poll
  }
}

export async function counted(locator, wanted, why) {
  assert.equal(await becomes(() => locator.count(), (seen) => seen === wanted), wanted, why);
}

export async function says(locator, words, why) {
  assert.match(await becomes(() => locator.innerText(), (seen) => words.test(seen)), words, why);
}

// No serious or critical finding of axe on the page as it stands.
export async function accessible(page) {
  const source = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');
  await page.evaluate(source);
  const findings = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ['violations'], selectors: false, preload: false, iframes: false });
    return result.violations
      .filter((violation) => violation.impact === 'serious' || violation.impact === 'critical')
      .map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`);
  });
  assert.deepEqual(findings, []);
}
