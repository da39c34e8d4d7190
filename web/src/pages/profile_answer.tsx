// The answer on top of a kernel profile: the sentence of its analysis and what it rests on; or where it stands, and what can be done.
import { paths } from '../base/api';
import type { Verdict } from '../base/decode';
import { bytes, clip, clock, count, utc } from '../base/format';
import { verdictMark } from '../base/health';
import { shortKernel, type ProfileSummary } from '../base/kernel_profile';
import type { StepMark } from '../base/kernel_timeline';
import { standing, stepsText, type Profile } from '../base/profile';
import { rooted } from '../base/root';
import { analyzeCommand } from '../base/share';
import { jobPlace, stepPlace, type ProfilePlace } from '../base/url';
import { fineDuration } from '../base/view';
import { CopyButton } from '../widgets/copy_button';
import { PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import type { ProfileData } from './profile_data';
import { RankStates } from './rank_states';

interface Props {
  place: ProfilePlace;
  data: ProfileData;
  profile: Profile;
  summary: ProfileSummary | null;
  steps: readonly StepMark[];
  rank: number | null;
  onKernel: (kernel: string) => void;
}

const kStepsShown = 10;
const kKernelShown = 40;

export function ProfileAnswer({ place, data, profile, summary, steps, rank, onKernel }: Props) {
  const answer = data.answer.value;
  const isKnown = answer !== null || data.unanalysed.value !== null;
  return (
    <section class="card verdict tone-quiet" aria-label="What the profile shows">
      <p class="verdict-head"><Facts {...{ profile, summary }} /></p>
      {summary && <h2 class="sentence strong">{summary.sentence || 'The analysis names nothing: no rank stands out.'}</h2>}
      {!summary && !isKnown && <Loading what="its analysis" />}
      {!summary && isKnown && <Standing {...{ place, data, profile }} />}
      {summary && summary.evidence.length > 0 && <ul class="evidence">{summary.evidence.map((one, index) => <li key={index}>{one}</li>)}</ul>}
      {summary && place.rank !== null && place.rank !== rank && <p class="muted">Rank {count(place.rank)} is not in this profile; rank {count(rank)} is compared instead.</p>}
      {summary?.notes.map((note, index) => <p key={index} class="muted">Note: {note}</p>)}
      <div class="actions">
        {summary?.kernel && place.kernel !== summary.kernel && (
          <button type="button" class="primary" title={`${summary.kernel} (k)`} onClick={() => onKernel(summary.kernel)}>Show kernel {clip(shortKernel(summary.kernel), kKernelShown)}</button>
        )}
        {summary && data.hasPerfetto.value && <a class="button" href={rooted(paths.profilePerfetto(place.job, place.capture))} download title="Opens at ui.perfetto.dev">Perfetto file</a>}
        <CopyButton content={analyzeCommand(place.job, place.capture)} label="Copy as CLI" name="Copy as CLI: lockstep analyze" />
        {summary && <Traces {...{ place, profile }} />}
        <Steps {...{ place, profile, steps, rank }} />
      </div>
      <VerdictLine {...{ place, data, profile, summary }} />
    </section>
  );
}

function Facts({ profile, summary }: { profile: Profile; summary: ProfileSummary | null }) {
  const done = profile.ranks.filter((rank) => rank.state === 'done').length;
  const size = profile.ranks.reduce((sum, rank) => sum + (rank.bytes ?? 0), 0);
  const world = summary?.worldSize ?? null;
  const facts = [
    stepsText(profile),
    `${count(done)} of ${count(profile.ranks.length)} ranks profiled${world !== null && world > profile.ranks.length ? `, the job has ${count(world)}` : ''}`,
    summary && summary.ranks.length > 1
      ? summary.clocksAligned ? `clocks agree to ${fineDuration(summary.clockError)}` : 'clocks not aligned' : '',
    size > 0 ? bytes(size) : '',
    profile.by.startsWith('verdict ') ? 'taken for a verdict' : '',
  ].filter(Boolean);
  return (
    <>
      {facts.map((fact) => <span key={fact}>{fact}</span>)}
      <span title={utc(profile.begun_unix_ns)}>{clock(profile.begun_unix_ns)}</span>
    </>
  );
}

// Not analysed: which of it is still to come, what failed, and how to go on without it.
function Standing({ place, data, profile }: { place: ProfilePlace; data: ProfileData; profile: Profile }) {
  const answer = data.answer.value;
  const done = profile.ranks.filter((rank) => rank.state === 'done');
  return (
    <>
      <div role="status"><h2 class="sentence">{standing(profile, answer?.state ?? 'none', answer?.error ?? '', data.unanalysed.value)}</h2></div>
      {done.length > 0 && answer?.state !== 'analysing' && answer?.state !== 'waiting' && (
        <p class="muted">The {done.length === 1 ? 'trace is' : 'traces are'} kept. On your own machine: <code>{analyzeCommand(place.job, place.capture)}</code></p>
      )}
      <RankStates job={place.job} profile={profile} />
    </>
  );
}

// As the ranks wrote them, for one's own tools.
function Traces({ place, profile }: { place: ProfilePlace; profile: Profile }) {
  const files = profile.ranks.filter((rank) => rank.file);
  if (files.length === 0) return null;
  return (
    <details>
      <summary>{files.length === 1 ? 'The trace' : `Traces of ${count(files.length)} ranks`}</summary>
      <p class="traces">{files.map((rank) => <a key={rank.rank} href={rooted(paths.profileFile(place.job, profile.capture, rank.file))} download>{rank.file}</a>)}</p>
    </details>
  );
}

// Down to the same steps as ranks saw them: who waited for whom.
function Steps({ place, profile, steps, rank }: { place: ProfilePlace; profile: Profile; steps: readonly StepMark[]; rank: number | null }) {
  const start = profile.start_step;
  const numbers = steps.length > 0 ? steps.map((step) => step.step) : start === null ? [] : Array.from({ length: profile.steps ?? 1 }, (_, index) => start + index);
  if (numbers.length === 0) return null;
  return (
    <span class="neighbours steps-of">
      <span class="muted">who waited for whom, step</span>
      {numbers.slice(0, kStepsShown).map((step) => <PlaceLink key={step} to={{ ...stepPlace(place.job, step), rank }}>{count(step)}</PlaceLink>)}
      {numbers.length > kStepsShown && <span class="muted">… {count(numbers[numbers.length - 1])}</span>}
    </span>
  );
}

// Back to what made somebody look: the job's verdict about these ranks.
function VerdictLine({ place, data, profile, summary }: { place: ProfilePlace; data: ProfileData; profile: Profile; summary: ProfileSummary | null }) {
  const verdict = verdictOf(data.why.value?.verdicts ?? [], profile, summary);
  if (!verdict) return null;
  return (
    <p class="verdict-line">
      <MarkView mark={verdictMark(verdict)} /> <span>{verdict.sentence}</span> <PlaceLink to={jobPlace(place.job)}>To the verdict</PlaceLink>
    </p>
  );
}

function verdictOf(verdicts: readonly Verdict[], profile: Profile, summary: ProfileSummary | null): Verdict | null {
  const ordered = verdicts.find((verdict) => profile.by === `verdict ${verdict.id}`);
  if (ordered) return ordered;
  const ranks = new Set(summary && summary.culprits.length > 0 ? summary.culprits : profile.ranks.map((rank) => rank.rank));
  return verdicts.find((verdict) => verdict.state !== 'cleared' && verdict.culprit.ranks.some((rank) => ranks.has(rank))) ?? null;
}
