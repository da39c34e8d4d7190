// One rank in this step: its phases and its operations, those first in which it waited longest.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import { bytes, count } from '../base/format';
import { usePoll } from '../base/poll';
import type { StepAnalysis } from '../base/step';
import { kKinds, kWaiting, timeByKind, type Timeline } from '../base/timeline';
import { curl } from '../base/share';
import { jobPlace, type StepPlace } from '../base/url';
import { fineDuration, type View } from '../base/view';
import { CopyButton } from '../widgets/copy_button';
import { PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { HostLink } from '../widgets/place_links';
import { Facts, Panel } from './panel';

interface Props {
  place: StepPlace;
  rank: number;
  tile: Timeline;
  analysis: StepAnalysis | null;
  hostOf: (rank: number) => string;
  commName: (comm: string) => string;
  move: (view: View) => void;
  onClose: () => void;
}

const kOperationsShown = 24;
const kColumns = 4_096;
const kSpansMost = 20_000;
const kEveryMs = 10_000;

export function StepRankPanel({ place, rank, tile, analysis, hostOf, commName, move, onClose }: Props) {
  const own = useSignal<Timeline | null>(null);
  const refused = useSignal<string | null>(null);
  const wanted = { from: null, to: null, columns: kColumns, lines: 1, ranks: String(rank), spans: kSpansMost };
  usePoll([place.job, place.step, rank], async (signal) => { own.value = await api.timeline(place.job, place.step, wanted, signal); },
    (message) => { refused.value = message; }, () => kEveryMs);
  const known = own.value;
  const line = known?.lines[0];
  const about = analysis?.ranks.find((row) => row.rank === rank);
  const shown = tile.lines.find((one) => rank >= one.first && rank <= one.last);
  return (
    <Panel title={`Rank ${count(rank)} in step ${count(place.step)}`} onClose={onClose}>
      <p><HostLink host={hostOf(rank)} none="host unknown" />{' · '}
        <PlaceLink to={{ ...jobPlace(place.job), step: place.step, rank }}>this rank over the steps</PlaceLink></p>
      {refused.value && <p role="alert">{refused.value}</p>}
      {!known && !refused.value && <Loading what="the rank" />}
      {known && !line && <p class="muted">No detail of this rank in this step: unknown.</p>}
      {shown && shown.first !== shown.last && shown.shown !== rank && (
        <p class="muted">Its line shows rank {count(shown.shown)}. <PlaceLink to={{ ...place, ranks: `${shown.first}-${shown.last}` }}>A line for each of ranks {count(shown.first)}–{count(shown.last)}</PlaceLink></p>
      )}
      {about && (
        <Facts rows={[
          ['made others wait', fineDuration(about.caused)], ['waited itself', fineDuration(about.wait)], ['own work', fineDuration(about.own)],
          ['exchange', fineDuration(about.transfer)], ['step', fineDuration(about.duration)],
        ]} />
      )}
      {known && line && <Kinds timeline={known} />}
      {known && line && <Phases timeline={known} move={move} />}
      {known && line && <Operations timeline={known} commName={commName} move={move} />}
      <p><CopyButton content={curl(paths.timeline(place.job, place.step, wanted))} label="Copy as curl" /></p>
    </Panel>
  );
}

function Kinds({ timeline }: { timeline: Timeline }) {
  const sums = timeByKind(timeline, timeline.lines[0]!).map((ns, kind) => ({ ns, kind })).filter(({ ns, kind }) => ns > 0 && kKinds[kind]!.family !== 'none');
  sums.sort((a, b) => b.ns - a.ns);
  const most = Math.max(1, ...sums.map(({ ns }) => ns));
  return (
    <>
      <h3>Where its time went</h3>
      <table class="facts">
        <tbody>
          {sums.map(({ ns, kind }) => (
            <tr key={kind}>
              <th scope="row">{kKinds[kind]!.word}</th>
              <td class="bar-cell"><div class={kind === kWaiting ? 'bar striped' : 'bar'} style={{ width: `${(100 * ns) / most}%`, backgroundColor: `var(--${kKinds[kind]!.token})` }} /></td>
              <td class="number">{fineDuration(ns)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Phases({ timeline, move }: { timeline: Timeline; move: (view: View) => void }) {
  const phases = timeline.spans.filter((span) => span.comm === '');
  if (phases.length === 0) return null;
  return (
    <>
      <h3>Phases</h3>
      <table class="facts">
        <thead><tr><th scope="col">phase</th><th scope="col" class="number">begins</th><th scope="col" class="number">lasts</th></tr></thead>
        <tbody>
          {phases.slice(0, kOperationsShown).map((span, index) => (
            <tr key={index}>
              <th scope="row"><button type="button" class="plain flat" onClick={() => move(around(span))}>{span.name}</button></th>
              <td class="number">{fineDuration(span.from)}</td>
              <td class="number">{fineDuration(span.duration)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {phases.length > kOperationsShown && <p class="muted">{kOperationsShown} of {count(phases.length)} phases, as they begin</p>}
    </>
  );
}

function Operations({ timeline, commName, move }: { timeline: Timeline; commName: (comm: string) => string; move: (view: View) => void }) {
  const all = timeline.spans.filter((span) => span.comm !== '');
  const worst = [...all].sort((a, b) => b.wait - a.wait || b.duration - a.duration).slice(0, kOperationsShown);
  if (timeline.spans.length === 0 && timeline.spansInView > 0) return <p class="muted">{count(timeline.spansInView)} operations: too many for a list. Perfetto has them.</p>;
  if (all.length === 0) return <p class="muted">No operation of communication.</p>;
  return (
    <>
      <h3>Operations</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Operations">
        <table class="facts">
          <thead>
            <tr><th scope="col">what</th><th scope="col">group</th><th scope="col" class="number">begins</th><th scope="col" class="number">lasts</th><th scope="col" class="number">waited</th></tr>
          </thead>
          <tbody>
            {worst.map((span, index) => (
              <tr key={index}>
                <th scope="row"><button type="button" class="plain flat" title={`number ${count(span.ordinal)}, ${bytes(span.bytes)}: show it`} onClick={() => move(around(span))}>{span.name}</button></th>
                <td title={span.comm}>{commName(span.comm)}</td>
                <td class="number">{fineDuration(span.from)}</td>
                <td class="number">{fineDuration(span.duration)}</td>
                <td class="number">{span.kind === kKinds.length - 1 ? '–' : fineDuration(span.wait)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted">{count(worst.length)} of {count(all.length)} operations, longest wait first; messages do not report theirs</p>
    </>
  );
}

// The span in the middle, as much again on either side.
function around(span: { from: number; duration: number }): View {
  return { from: span.from - span.duration, to: span.from + 2 * span.duration };
}
