// Early warnings: one sentence each, the soonest first, with what to do about it and the numbers behind it.
import { useState } from 'preact/hooks';
import type { Warning } from '../base/decode';
import { clock, count, utc } from '../base/format';
import { ClaimList } from './claim';
import { CopyButton } from './copy_button';

const kShown = 3;

export function Warnings({ warnings, total }: { warnings: Warning[]; total: number }) {
  const [all, setAll] = useState(false);
  if (warnings.length === 0) return null;
  const shown = all ? warnings : warnings.slice(0, kShown);
  return (
    <section class="card warnings" aria-label="Early warnings">
      <h2><span aria-hidden="true">◔ </span>Early warnings <span class="muted">what will hurt if it goes on, the soonest first</span></h2>
      <ul>{shown.map((warning) => <Item key={warning.id} warning={warning} />)}</ul>
      {shown.length < warnings.length && (
        <button type="button" class="plain" onClick={() => setAll(true)}>{count(warnings.length - shown.length)} more</button>
      )}
      {all && total > warnings.length && <p class="muted">{count(warnings.length)} of {count(total)}; lockstep warnings --json has all</p>}
    </section>
  );
}

function Item({ warning }: { warning: Warning }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <p class="warning-head">
        <span class="warning-sentence">{warning.sentence}</span>
        {warning.raised_unix_ns !== null && <span class="muted" title={utc(warning.raised_unix_ns)}>since {clock(warning.raised_unix_ns)}</span>}
        <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'less' : 'evidence'}</button>
      </p>
      <p class="warning-next">
        <span>{warning.action}</span>
        {open && warning.command && (
          <span class="command">
            <code>{warning.command}</code>
            <CopyButton content={warning.command} name={`Copy the command: ${warning.action}`} />
          </span>
        )}
      </p>
      {open && <ClaimList title="Because" claims={warning.claims} />}
      {open && warning.record && (
        <p class="muted">Of {count(warning.record.raised)} such warnings in simulation {count(warning.record.came_true)} came true in time.</p>
      )}
    </li>
  );
}
