// The answer: kind, state and since when; the sentence; the cost; the evidence, each piece one click from its numbers; what it
// is not; what to do next.
import { useState } from 'preact/hooks';
import type { Verdict } from '../base/decode';
import { clean, clock, count, gpuTime, percent, utc } from '../base/format';
import { verdictMark } from '../base/health';
import { captureOf, stepsText, type Profile } from '../base/profile';
import { pathOf } from '../base/share';
import { docsPlace, fabricPlace, go, incidentPlace, pathPlace, place, profilePlace, profilesPlace } from '../base/url';
import { ClaimList } from './claim';
import { CopyButton } from './copy_button';
import { FeedbackButtons } from './feedback';
import { PlaceLink } from './frame';
import { MarkView } from './mark';
import { HostLink } from './place_links';

const kRankButtonsMax = 6;

interface Props {
  verdict: Verdict;
  startOpen: boolean;
  profiles?: readonly Profile[];  // kernel profiles of the job
  canProfile?: boolean;  // its ranks' kernels; false: they have none
  isUnsure?: boolean;    // nobody knows whether its ranks' agents answer
  sampling?: { said: string; order: () => void };  // of stacks of its ranks and their neighbours
  onRank: (rank: number, verdict: Verdict) => void;
}

// How it comes back; nothing of what stands still.
function pattern(verdict: Verdict): string {
  if (verdict.kind === 'hang' || verdict.kind === 'fail') return '';
  return verdict.period_steps ? `${verdict.pattern}, every ${count(verdict.period_steps)} steps` : verdict.pattern;
}

export function VerdictCard({ verdict, startOpen, profiles = [], canProfile, isUnsure, sampling, onRank }: Props) {
  const [open, setOpen] = useState(startOpen);
  const mark = verdictMark(verdict);
  const because = verdict.chain.filter((claim) => claim.kind !== 'exclusion' && claim.kind !== 'counterfactual');
  const without = verdict.chain.filter((claim) => claim.kind === 'counterfactual');
  const not = verdict.chain.filter((claim) => claim.kind === 'exclusion');
  return (
    <section class={`card verdict tone-${mark.tone}`} aria-label={`Verdict: ${mark.word}, ${verdict.state}`}>
      <div class="verdict-top">
        <p class="verdict-head">
          <MarkView mark={mark} upper />
          <span>{verdict.state}</span>
          {pattern(verdict) && <span>{pattern(verdict)}</span>}
          {verdict.since_step !== null && <span title={utc(verdict.since_unix_ns)}>since step {count(verdict.since_step)}{since(verdict)}</span>}
          {verdict.culprit.place && <span>at <PlaceLink to={{ ...fabricPlace(verdict.culprit.place), at: timeOf(verdict) }}>{clean(verdict.culprit.place.replace(':', ' '))}</PlaceLink></span>}
          {verdict.culprit.host && <span>on <HostLink host={verdict.culprit.host} /></span>}
          {verdict.incident && <span><PlaceLink to={incidentPlace(verdict.incident.id)}>incident</PlaceLink> {verdict.incident.state}</span>}
          {!startOpen && (
            <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'less' : 'evidence'}</button>
          )}
        </p>
        <FeedbackButtons verdict={verdict} />
      </div>
      <h2 class="sentence">{verdict.sentence || 'The server gave a verdict without a sentence.'}</h2>
      {open && (
        <>
          <Cost verdict={verdict} />
          <div class="verdict-body">
            <div>
              <ClaimList title="Because" claims={because} />
              <ClaimList title="Without it" claims={without} />
              <Alternatives verdict={verdict} />
            </div>
            <div>
              <ClaimList title="Not" claims={not} />
              <NextActions verdict={verdict} profile={captureOf(verdict, profiles)} canProfile={canProfile} isUnsure={isUnsure} sampling={sampling} onRank={onRank} />
            </div>
          </div>
        </>
      )}
    </section>
  );
}

// The culprits and one to compare with.
function profileRanks(culprits: readonly number[]): string {
  return culprits.length > 0 ? [...culprits.slice(0, kRankButtonsMax), 'median'].join(',') : 'worst,median';
}

function since(verdict: Verdict): string {
  return verdict.since_unix_ns ? `, ${clock(verdict.since_unix_ns)}` : '';
}

function Cost({ verdict }: { verdict: Verdict }) {
  // What the sentence says already is not said twice.
  const { sentence } = verdict;
  const parts = [
    verdict.lost_share && !sentence.includes('of the job') ? `${percent(verdict.lost_share)} of the job` : '',
    sentence.includes('GPU-hours') ? '' : gpuTime(verdict.lost_gpu_seconds),
    verdict.money,
    verdict.coverage !== null && verdict.coverage < 0.995 ? `seen by ${percent(verdict.coverage)} of the ranks` : '',
  ].filter(Boolean);
  if (parts.length === 0) return null;
  return <p class="cost">{parts.map((part, index) => <span key={index}>{part}</span>)}</p>;
}

interface NextProps extends Pick<Props, 'verdict' | 'sampling' | 'canProfile' | 'isUnsure' | 'onRank'> {
  profile: Profile | null;
}

function NextActions({ verdict, profile, canProfile = true, isUnsure, sampling, onRank }: NextProps) {
  const { ranks } = verdict.culprit;
  const at = place.value;
  const shown = ranks.slice(0, kRankButtonsMax);
  const isProfiled = at.page === 'job' && verdict.kind !== 'hang' && verdict.kind !== 'fail' && verdict.state !== 'cleared';
  return (
    <div class="claims">
      <h3>Next</h3>
      <ul class="next">
        {(shown.length > 0 || isProfiled) && (
          <li>
            {shown.map((rank) => (
              <button type="button" class="primary" key={rank} onClick={() => onRank(rank, verdict)}>Show rank {count(rank)}</button>
            ))}
            {ranks.length > shown.length && <span class="muted">and {count(ranks.length - shown.length)} more</span>}
            {isProfiled && profile && (
              <PlaceLink class="button" to={{ ...profilePlace(at.job, profile.capture), rank: ranks[0] ?? null }}>
                {profile.ended ? `Kernels of ${stepsText(profile)}` : 'Kernel profile under way'}
              </PlaceLink>
            )}
            {isProfiled && (canProfile || profile) && (
              <button type="button" title="Which kernels its ranks run, beside a usual one"
                      onClick={() => go(profilesPlace(at.job, profileRanks(ranks)))}>{profile ? 'Profile again' : 'Profile kernels'}</button>
            )}
            {isProfiled && sampling && ranks.length > 0 && (
              <button type="button" title="Looks at the Python stacks of its ranks and of two neighbours for 5 s" onClick={sampling.order}>Which line?</button>
            )}
            {sampling && <span role="status">{sampling.said}</span>}
            {isProfiled && isUnsure && <span class="muted">whether its agent answers is not known: it reports to a gateway</span>}
          </li>
        )}
        {verdict.next.map((next, index) => (
          <li key={index}>
            <span>{next.action}</span>
            <PathLink verdict={verdict} command={next.command} />
            {next.command && (
              <span class="command">
                <code>{next.command}</code>
                <CopyButton content={next.command} name={`Copy the command: ${next.action}`} />
              </span>
            )}
          </li>
        ))}
        {verdict.runbook && <li><PlaceLink to={docsPlace(verdict.runbook)}>What to do about {clean(verdict.culprit.cause)}</PlaceLink></li>}
      </ul>
    </div>
  );
}

// Of a verdict that is over, the fabric as it was.
const timeOf = (verdict: Verdict): number | null => (verdict.state === 'cleared' ? verdict.since_unix_ns : null);

// What a command shows of the way between two ranks has a page.
function PathLink({ verdict, command }: { verdict: Verdict; command: string }) {
  const at = place.value;
  const ends = pathOf(command);
  if (!ends || at.page !== 'job') return null;
  return <PlaceLink class="button" to={{ ...pathPlace(ends.a, ends.b, at.job), at: timeOf(verdict) }}>The way from rank {count(Number(ends.a))} to rank {count(Number(ends.b))}</PlaceLink>;
}

// For a suspicion, what would settle it is part of the answer; for a confirmed verdict it is background.
function Alternatives({ verdict }: { verdict: Verdict }) {
  const checked = verdict.alternatives.filter((other) => other.checked);
  return (
    <>
      <Others title={verdict.state === 'suspected' ? 'Could also be' : 'Considered and set aside'} others={checked} open={verdict.state === 'suspected'} />
      <Others title="Not checked" others={verdict.alternatives.filter((other) => !other.checked)} open={false}
              hint="lockstep-agent on the node reports its GPU, NIC and host; lockstep doctor says what is missing." />
    </>
  );
}

function Others({ title, others, open, hint }: { title: string; others: Verdict['alternatives']; open: boolean; hint?: string }) {
  if (others.length === 0) return null;
  return (
    <details class="alternatives" open={open}>
      <summary>{title} ({count(others.length)})</summary>
      {hint && <p class="muted">{hint}</p>}
      <ul>
        {others.map((other, index) => (
          <li key={index}>
            {other.culprit}{other.why_lower && `: ${other.why_lower}`}
            {other.decided_by && <span class="muted"> · would be decided by {other.decided_by}</span>}
          </li>
        ))}
      </ul>
    </details>
  );
}
