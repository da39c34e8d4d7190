// The answer on top of the step page: who made whom wait and what it cost; or that there is no detail, and how to get it.
import { useState } from 'preact/hooks';
import { api, paths } from '../base/api';
import { canAsk } from '../base/decode';
import { count, duration } from '../base/format';
import { cell, type StepMatrix } from '../base/matrix';
import { captureOfStep } from '../base/profile';
import { rooted, serverUrl } from '../base/root';
import type { StepAnalysis, TracedSteps } from '../base/step';
import type { Timeline } from '../base/timeline';
import { shellWord } from '../base/share';
import { profilePlace, profilesPlace, stepPlace, type StepPlace } from '../base/url';
import { fineDuration } from '../base/view';
import { CopyButton } from '../widgets/copy_button';
import { PlaceLink } from '../widgets/frame';
import type { StepData } from './step_data';

interface Props {
  place: StepPlace;
  data: StepData;
}

export function StepAnswer({ place, data }: Props) {
  const analysis = data.analysis.value;
  const tile = data.tile.value;
  const has = tile !== null && tile.ranksTraced > 0;
  const answers = data.traced.value?.answers ?? null;
  const profile = captureOfStep(place.step, data.profiles.value);
  return (
    <section class="card verdict tone-quiet" aria-label={`Step ${count(place.step)}`}>
      <p class="verdict-head"><Facts {...{ data, analysis, tile }} /></p>
      {has || tile === null
        ? <h2 class="sentence">{analysis?.detail ? analysis.sentence : tile && data.analysed.value ? fallback(data.summary.value) : '\u00a0'}</h2>
        : <NoDetail place={place} data={data} />}
      <div class="actions">
        {has && (
          <>
            <a class="button" href={rooted(paths.perfetto(place.job, place.step, 'tar', place.ranks))} download>Perfetto archive</a>
            <a class="button" href={rooted(paths.perfetto(place.job, place.step, 'pftrace', place.ranks))} download>Perfetto file</a>
          </>
        )}
        {profile
          ? <PlaceLink class="button primary" to={{ ...profilePlace(place.job, profile.capture), step: place.step, rank: place.rank }}>Kernels of this step</PlaceLink>
          : canAsk(answers, 'profiles') && <PlaceLink class="button" to={profilesPlace(place.job)}>Profile kernels</PlaceLink>}
        <CopyButton content={stepCommand(place)} label="Copy as CLI" name="Copy as CLI: lockstep step" />
        {has && <CopyButton content={traceCommand(place)} label="Copy trace command" />}
        {has && <Neighbours place={place} traced={data.traced.value} />}
      </div>
    </section>
  );
}

function Facts({ data, analysis, tile }: { data: StepData; analysis: StepAnalysis | null; tile: Timeline | null }) {
  const summary = data.summary.value;
  const median = summary?.stepMs[0];
  const total = tile?.ranksTotal || analysis?.ranksTotal || summary?.ranksTotal || null;
  const error = tile?.clockErrorUs ?? null;
  const facts = [
    median !== undefined && !Number.isNaN(median) ? `median rank ${duration(median)}` : 'step time unknown',
    tile && `detail of ${tile.ranksTraced === total ? `all ${count(total)}` : `${count(tile.ranksTraced)} of ${count(total)}`} ranks`,
    tile && tile.ranksTraced > 0 && error !== null && error > 0 ? `clocks agree to ${fineDuration(error * 1e3)}` : tile && tile.ranksTraced > 1 ? 'clocks not aligned' : null,
    analysis?.clocksUnknown ? `clocks of ${count(analysis.clocksUnknown)} ranks unknown` : null,
    analysis?.inferred ? 'where it begins and ends is inferred' : null,
    analysis?.leftOut ? `${count(analysis.leftOut)} operations left out` : null,
  ].filter(Boolean);
  return <>{facts.map((fact) => <span key={fact}>{fact}</span>)}</>;
}

// Without detail: what the summaries say about the ranks' own time. Who made whom wait would be a guess.
function fallback(summary: StepMatrix | null): string {
  if (!summary || summary.steps.length === 0) return '';
  const heard = summary.ranks.flatMap((rank, row) => {
    const over = cell(summary.excess, summary, row, 0);
    return over === null ? [] : [{ rank, over, host: summary.hosts[row]!, self: cell(summary.self, summary, row, 0) ?? 0 }];
  }).sort((a, b) => b.over - a.over);
  const worst = heard[0];
  const step = summary.stepMs[0]!;
  if (!worst || Number.isNaN(step)) return '';
  if (worst.over < kWorthShare * step) return `Nobody stands out: the slowest rank, ${count(worst.rank)}, took ${duration(Math.max(0, worst.over))} longer than its peers.`;
  return `Rank ${count(worst.rank)}${worst.host && ` (${worst.host})`} took ${duration(worst.over)} longer of its own than its peers: ${duration(worst.self)} against ${duration(worst.self - worst.over)}.`;
}
const kWorthShare = 0.03;

function NoDetail({ place, data }: { place: StepPlace; data: StepData }) {
  const [said, setSaid] = useState('');
  const ask = async (): Promise<void> => {
    setSaid('Asking …');
    try {
      const asked = await api.askDetail(place.job, place.step, new AbortController().signal);
      const refused = asked.refused ? `; ${count(asked.refused)} ranks were asked too often, try again in a minute` : '';
      setSaid(asked.hosts
        ? `Asked ${count(asked.hosts)} ${asked.hosts === 1 ? 'host' : 'hosts'} for ${count(asked.ranks)} ranks. What their agents still have arrives within seconds${refused}.`
        : `Nobody to ask: no agent of this job is known${refused}.`);
      data.soon();
    } catch (error) {
      setSaid(error instanceof Error && error.message ? error.message : 'No answer.');
    }
  };
  const near = nearest(data.traced.value, place.step);
  const isKept = canAsk(data.traced.value?.answers ?? null, 'detail');
  const sentence = fallback(data.summary.value);
  if (data.summary.value?.steps.length === 0) return <h2 class="sentence">Nothing is known of step {count(place.step)}: it has not come yet, or it is too long ago.</h2>;
  return (
    <>
      <h2 class="sentence">No detail of step {count(place.step)}: agents send a few steps in detail{isKept ? ' and keep the last minutes of the rest' : '; of these ranks none keeps the rest'}.</h2>
      {sentence && <p>From summaries alone: {sentence}</p>}
      <p class="actions">
        {isKept && <button type="button" class="primary" onClick={() => void ask()}>Ask for it</button>}
        {near.length > 0 && (
          <span>nearest steps with detail:{' '}
            {near.map((step) => <PlaceLink key={step} to={stepPlace(place.job, step)} class="near">{count(step)}</PlaceLink>)}
          </span>
        )}
        {data.traced.value && near.length === 0 && <span class="muted">No step of this job has been sent in detail yet.</span>}
        <span role="status">{said}</span>
      </p>
    </>
  );
}

const kNear = 4;

export function nearest(traced: TracedSteps | null, step: number): number[] {
  return (traced?.steps ?? []).map((one) => one.step).sort((a, b) => Math.abs(a - step) - Math.abs(b - step) || a - b).slice(0, kNear).sort((a, b) => a - b);
}

// The next steps with detail on either side.
function Neighbours({ place, traced }: { place: StepPlace; traced: TracedSteps | null }) {
  const steps = (traced?.steps ?? []).map((one) => one.step);
  const before = Math.max(...steps.filter((step) => step < place.step));
  const after = Math.min(...steps.filter((step) => step > place.step));
  const to = (step: number) => ({ ...stepPlace(place.job, step), ranks: place.ranks, rank: place.rank, view: place.view });
  if (!Number.isFinite(before) && !Number.isFinite(after)) return null;
  return (
    <span class="neighbours">
      <span class="muted">with detail: </span>
      {Number.isFinite(before) && <PlaceLink to={to(before)}>‹ step {count(before)}</PlaceLink>}
      {Number.isFinite(after) && <PlaceLink to={to(after)}>step {count(after)} ›</PlaceLink>}
    </span>
  );
}

function jobWord(job: string): string {
  return `${job.startsWith('-') ? '-- ' : ''}${shellWord(job)}`;
}

export function stepCommand(place: StepPlace): string {
  return `lockstep step --server ${shellWord(serverUrl())} ${jobWord(place.job)} ${place.step}`;
}

function traceCommand(place: StepPlace): string {
  return `lockstep trace --server ${shellWord(serverUrl())} --step ${place.step}${place.ranks && ` --ranks ${place.ranks}`} ${jobWord(place.job)}`;
}
