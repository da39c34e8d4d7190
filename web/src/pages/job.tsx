// Why is my job slow? The answer on top, then where the time goes, then which rank; one column, one step axis, one crosshair.
import { useSignal } from '@preact/signals';
import { useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import type { Mfu } from '../base/cost';
import { canAsk, type Verdict, type Why } from '../base/decode';
import { clean, clock, count, duration, number, percent, utc } from '../base/format';
import { healthMark, stateMark, type Mark } from '../base/health';
import { excessMax, order, type StepMatrix } from '../base/matrix';
import { line } from '../base/poll';
import { captureOf, type Profile } from '../base/profile';
import { fabricPlace, go, logsPlace, profilePlace, profilesPlace, type JobPlace } from '../base/url';
import { Frame, PlaceLink, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import type { Point } from '../widgets/point';
import { VerdictCard } from '../widgets/verdict_card';
import { Warnings } from '../widgets/warnings';
import { JobCharts } from './job_charts';
import { CostCard, MfuCard } from './job_cost';
import { useJobData, type Told } from './job_data';
import { useJobKeys } from './job_keys';
import { LinesCard, useSamples, type Sampling } from './job_lines';
import { JobTables } from './job_tables';
import { RankPanel } from './rank_panel';
import { StepPanel } from './step_panel';

export function JobPage({ place }: { place: JobPlace }) {
  const data = useJobData(place);
  const sampling = useSamples(place.job);
  const why = data.why.value;
  const matrix = data.matrix.value;
  const open = why?.verdicts.filter((verdict) => verdict.state !== 'cleared') ?? [];
  const culpritKey = open.flatMap((verdict) => verdict.culprit.ranks).join();
  const culprits = useMemo(() => new Set(open.flatMap((verdict) => verdict.culprit.ranks)), [culpritKey]);
  const max = useMemo(() => (matrix ? excessMax(matrix) : 1), [matrix]);
  const rows = useMemo(() => (matrix ? order(matrix, place.sort, culprits, max) : []), [matrix, place.sort, culprits, max]);

  const hover = useSignal<Point | null>(null);
  const cursor = useSignal<Point | null>(null);
  const selected = place.rank !== null ? { rank: place.rank, step: place.step ?? newest(matrix) } : cursor.value;
  const pick = (rank: number | null, step: number | null, replace = false): void => {
    cursor.value = rank !== null && step !== null ? { rank, step } : null;
    go({ ...place, rank, step }, replace);
  };
  const showRank = (rank: number, verdict: Verdict): void => pick(rank, guiltyStep(verdict, matrix));
  // The profile taken for the first verdict, else the list.
  const showKernels = (): void => {
    const profile = open[0] ? captureOf(open[0], data.profiles.value) : null;
    go(profile ? { ...profilePlace(place.job, profile.capture), rank: open[0]!.culprit.ranks[0] ?? null } : profilesPlace(place.job));
  };
  useJobKeys({ place, matrix, rows, cursor, selected, pick, showKernels });

  const panelOpen = place.rank !== null || place.step !== null;
  useKeptPlace(panelOpen);

  document.title = `${why ? `${healthMark(why.health).glyph} ` : ''}${clean(place.job)} · Lockstep`;
  const name = clean(place.job);
  const crumbs: Crumb[] = [{ label: 'Fleet', to: { page: 'fleet' } }, { label: name, to: { ...place, step: null, rank: null } }];
  if (place.step !== null) crumbs.push({ label: `step ${count(place.step)}`, to: { ...place, rank: null } });
  if (place.rank !== null) crumbs.push({ label: `rank ${count(place.rank)}`, to: place });
  if (data.refused.value) {
    return (
      <Frame crumbs={crumbs}>
        <section class="card"><h2 class="sentence" role="alert">{data.refused.value}</h2><p class="muted">The fleet lists every job known.</p></section>
      </Frame>
    );
  }
  const since = open.flatMap((verdict) => (verdict.since_step === null ? [] : [verdict.since_step]));
  return (
    <Frame crumbs={crumbs} state={why && <JobState why={why} told={data.told.value} mfu={data.mfu.value} />}>
      <div class={panelOpen ? 'with-panel' : undefined}>
        <div class="column">
          {why ? <Answers why={why} open={open} profiles={data.profiles.value} sampling={sampling} onRank={showRank} /> : <Loading what={name} />}
          {why && <Warnings warnings={why.warnings} total={why.warnings.length} />}
          {why && matrix && (place.view === 'table'
            ? <JobTables {...{ place, why, matrix, ranks: data.ranks.value, culprits }} />
            : <JobCharts {...{ place, why, matrix, rows, max, culprits, since, hover, selected, pick }} traced={data.traced.value}
                         pinned={data.pinned.value}
                         onFollow={() => { pick(null, null); data.follow(); }} />)}
          {why && sampling.sampled.value && <LinesCard job={place.job} sampled={sampling.sampled.value} />}
          {why && data.cost.value && <CostCard job={place.job} cost={data.cost.value} />}
          {why && data.mfu.value && <MfuCard job={place.job} mfu={data.mfu.value} />}
          {why && <Cleared why={why} onRank={showRank} />}
        </div>
        {place.rank !== null && why && (
          <RankPanel key={place.rank} {...{ place, rank: place.rank, why, matrix }} onClose={() => pick(null, place.step)} />
        )}
        {place.rank === null && place.step !== null && why && (
          <StepPanel {...{ place, step: place.step, matrix, traced: data.traced.value }} onRank={(rank) => pick(rank, place.step)} onClose={() => pick(null, null)} />
        )}
      </div>
    </Frame>
  );
}

// The panel makes the column narrower and the verdict above the map taller. Whoever works on the map finds it where it was.
function useKeptPlace(panelOpen: boolean): void {
  const before = useRef<number | null>(null);
  const top = (): number | null => {
    const map = document.getElementById('heatmap');
    return map && map === document.activeElement ? map.getBoundingClientRect().top : null;
  };
  const changed = useRef(panelOpen);
  if (changed.current !== panelOpen) before.current = top();
  useLayoutEffect(() => {
    const now = top();
    if (before.current !== null && now !== null) window.scrollBy(0, now - before.current);
    before.current = null;
    changed.current = panelOpen;
  }, [panelOpen]);
}

const kNoAnswer: Mark = { glyph: '◌', word: 'no answer', tone: 'quiet' };

function JobState({ why, told, mfu }: { why: Why; told: Told; mfu: Mfu | null }) {
  const { job } = why;
  // What cannot be asked is not live, whatever it was when last heard.
  const lost = line.value.lostSince !== null;
  return (
    <>
      <span title={`last heard ${utc(job.last_seen_unix_ns)}`}>
        <MarkView mark={lost ? kNoAnswer : stateMark(job)} />
        {!lost && job.state !== 'running' && ` since ${clock(job.last_seen_unix_ns)}`}
      </span>
      <span>step {count(job.last_step)}</span>
      <span>{job.ranks_reporting !== null && job.ranks_reporting !== job.world_size && `${count(job.ranks_reporting)} of `}{count(job.world_size)} ranks</span>
      <span>{why.health === 'hang' && 'was '}<b>{duration(job.step_ms)}</b>/step</span>
      {mfu !== null && mfu.mfu !== null && <span title={mfu.sentence}>MFU <b>{percent(mfu.mfu)}</b></span>}
      <PlaceLink to={profilesPlace(job.job_id)}>profiles</PlaceLink>
      <PlaceLink to={fabricPlace(`job:${job.job_id}`)}>fabric</PlaceLink>
      <PlaceLink to={logsPlace({ job: job.job_id })}>logs</PlaceLink>
      {told.loss.length > 0 && <span title={lossTitle(told)}>loss <b>{number(told.loss[0]!.value)}</b></span>}
    </>
  );
}

function lossTitle({ loss }: Told): string {
  const oldest = loss[loss.length - 1]!;
  return `step ${count(loss[0]!.step)}; ${number(oldest.value)} at step ${count(oldest.step)}`;
}

interface AnswersProps {
  why: Why;
  open: Verdict[];
  profiles: readonly Profile[];
  sampling: Sampling;
  onRank: (rank: number, verdict: Verdict) => void;
}

// The first open verdict in full, further ones by their sentence. No verdict is an answer too.
function Answers({ why, open, profiles, sampling, onRank }: AnswersProps) {
  return (
    <>
      {open.map((verdict, index) => <VerdictCard key={verdict.id} verdict={verdict} startOpen={index === 0} profiles={profiles} canProfile={canAsk(why.answers, 'profiles')} isUnsure={why.answersUnknown.length > 0} onRank={onRank}
                                                   sampling={index === 0 && canAsk(why.answers, 'samples') ? { said: sampling.said.value, order: () => void sampling.order('') } : undefined} />)}
      {open.length === 0 && (
        <section class="card verdict tone-quiet" aria-label="No open verdict">
          <p class="verdict-head"><MarkView mark={healthMark(why.health)} upper /></p>
          <h2 class="sentence">{why.summary || 'No verdict yet.'}</h2>
        </section>
      )}
    </>
  );
}

function Cleared({ why, onRank }: { why: Why; onRank: AnswersProps['onRank'] }) {
  const cleared = why.verdicts.filter((verdict) => verdict.state === 'cleared');
  if (cleared.length === 0) return null;
  return (
    <details class="cleared">
      <summary>{count(cleared.length)} cleared earlier</summary>
      {cleared.map((verdict) => <VerdictCard key={verdict.id} verdict={verdict} startOpen={false} onRank={onRank} />)}
    </details>
  );
}

function newest(matrix: StepMatrix | null): number {
  return matrix?.steps[matrix.steps.length - 1] ?? 0;
}

// The newest step that the verdict covers, so that the panel opens on a step where the guilt shows.
function guiltyStep(verdict: Verdict, matrix: StepMatrix | null): number {
  const end = newest(matrix);
  return verdict.through_step !== null && verdict.through_step <= end ? verdict.through_step : end;
}
