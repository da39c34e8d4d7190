// One step: who made whom wait and what it cost, then every rank on one axis, then the numbers behind it.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { RefObject } from 'preact';
import { clean, count } from '../base/format';
import { line } from '../base/poll';
import { go, jobPlace, type StepPlace } from '../base/url';
import { fineDuration, fit, wholeView } from '../base/view';
import { Frame, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { useMoving } from './moving';
import { StepAnswer } from './step_answer';
import { chartLines, StepChartCard } from './step_chart_card';
import { useStepData } from './step_data';
import { useStepKeys } from './step_keys';
import { StepRankPanel } from './step_rank_panel';
import { StepTables } from './step_tables';

export function StepPage({ place }: { place: StepPlace }) {
  const room = useSignal({ columns: 0, lines: 0 });
  const data = useStepData(place, room.value);
  const tile = data.tile.value;
  const analysis = data.analysis.value;
  const summary = data.summary.value;
  const length = tile?.length || data.overview.value?.length || analysis?.length || 0;

  const asked = length > 0 ? fit(place.from !== null && place.to !== null ? { from: place.from, to: place.to } : wholeView(length), length) : null;
  const { view, move } = useMoving(place, length, asked, (now, to) => ({ ...now, from: to?.from ?? null, to: to?.to ?? null }));
  const pick = (rank: number | null, replace = false): void => go({ ...place, rank }, replace);
  const showPath = useSignal(true);
  useStepKeys({ place, tile, view, length, move, pick, togglePath: () => { showPath.value = !showPath.value; } });

  const hosts = useMemo(() => {
    const known = new Map<number, string>(summary?.ranks.map((rank, row) => [rank, summary.hosts[row]!]));
    for (const rank of analysis?.ranks ?? []) if (rank.host) known.set(rank.rank, rank.host);
    return known;
  }, [summary, analysis]);
  const hostOf = (rank: number): string => hosts.get(rank) ?? '';
  const commNames = useMemo(() => new Map((analysis?.comms ?? []).map((comm) => [comm.comm, comm.name])), [analysis]);
  const commName = (comm: string): string => commNames.get(comm) || (comm.length > 10 ? `${comm.slice(0, 6)}…` : comm);

  const name = clean(place.job);
  document.title = `step ${count(place.step)} · ${name} · Lockstep`;
  const crumbs: Crumb[] = [
    { label: 'Fleet', to: { page: 'fleet' } },
    { label: name, to: { ...jobPlace(place.job), step: place.step } },
    { label: `step ${count(place.step)}`, to: { ...place, rank: null } },
  ];
  if (place.rank !== null) crumbs.push({ label: `rank ${count(place.rank)}`, to: place });
  if (data.refused.value && !tile && !summary) {
    return (
      <Frame crumbs={crumbs}>
        <section class="card"><h2 class="sentence" role="alert">{data.refused.value}</h2><p class="muted">The fleet lists every job known.</p></section>
      </Frame>
    );
  }
  const panelOpen = place.rank !== null && tile !== null;
  return (
    <Frame crumbs={crumbs} state={tile && tile.lines.length > 0 && <span>{line.value.lostSince !== null && '◌ no answer · '}<b>{fineDuration(length)}</b> from the first start to the last end</span>}>
      <div class={panelOpen ? 'with-panel' : undefined}>
        <div class="column">
          <StepAnswer {...{ place, data }} />
          <RoomGauge room={room} />
          {tile && tile.lines.length > 0 && view && data.overview.value && (
            <StepChartCard {...{ place, tile, overview: data.overview.value, view, length, analysis, room, showPath, move, pick, hostOf, commName }} />
          )}
          {!tile && <section class="card charts" style={{ minHeight: `${chartLines() + 128}px` }}><Loading what={`step ${count(place.step)}`} /></section>}
          {summary && tile && <StepTables {...{ place, analysis, summary, tile, hostOf, commName, pick }} />}
        </div>
        {panelOpen && <StepRankPanel key={place.rank} {...{ place, rank: place.rank!, tile: tile!, analysis, hostOf, commName, move }} onClose={() => pick(null)} />}
      </div>
    </Frame>
  );
}

// The first question is asked before the chart exists: for a chart of the usual place and size.
function RoomGauge({ room }: { room: { value: { columns: number; lines: number } } }) {
  const box: RefObject<HTMLDivElement> = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (room.value.columns > 0 || !box.current) return;
    const columns = Math.max(64, Math.min(4_096, Math.floor(box.current.clientWidth) - 170));
    room.value = { columns, lines: chartLines() };
  }, []);
  return <div ref={box} />;
}
