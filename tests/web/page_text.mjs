// What a page says to whoever looks at it, for tests in Python: node page_text.mjs URL PATTERN prints its text once the pattern is in it.
import { launch, noErrors, openPage, says } from './browser.mjs';

const [url, pattern] = process.argv.slice(2);
const browser = await launch();
try {
  const page = await openPage(browser);
  await page.goto(url);
  const body = page.locator('body');
  await says(body, new RegExp(pattern), `${pattern} is on ${url}`);
  console.log(await body.innerText());
  noErrors(page);
} finally {
  await browser.close();
}
