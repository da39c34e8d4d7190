// What the loss is made of and what it costs; why MFU is what it is. Under the charts: the verdict has said the worst of it.
import type { JSX } from 'preact';
import { paths } from '../base/api';
import { falls, type Cost, type CostPart, type Mfu, type MfuBar } from '../base/cost';
import { count, gpuTime, number, percent } from '../base/format';
import { copy, csv, curl, download, mfuCommand, whyCommand } from '../base/share';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

// Less than this of the job's time is the everyday difference between steps.
const kNothingShare = 0.01;
const kColours = 6;

export function CostCard({ job, cost }: { job: string; cost: Cost }) {
  const lost = cost.lost_share !== null && cost.lost_share >= kNothingShare;
  const parts = cost.parts.filter((part) => part.share >= 0.0005 || part.kind === 'unexplained');
  const priced = cost.gpu_hour_price !== null;
  return (
    <section class="card charts" aria-label="Cost">
      <div class="chart-head">
        <h2>What is the lost time made of?</h2>
        <Menu label="Menu of the cost" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.cost(job))) },
          { label: 'Copy as CLI', run: () => copy(whyCommand(job)) },
          { label: 'Download CSV', run: () => download(`${job}-cost.csv`, costCsv(cost)) },
        ]} />
      </div>
      <p class="answer">{cost.sentence}{lost && ` ${gpuTime(cost.lost_gpu_seconds)}${cost.money && `, ${cost.money}`}.`}</p>
      {lost && (
        <>
          <div class="share-bar" role="img" aria-label={parts.map((part) => `${part.name} ${percent(part.share)}`).join(', ')}>
            {parts.map((part, index) => (
              <span key={part.verdict || part.kind} class={colour(part, index)} style={{ width: `${100 * part.share}%` }} title={`${part.name}: ${percent(part.share)}`} />
            ))}
          </div>
          <Table caption="Parts of the lost time" what="parts" sorted="largest first, unexplained last" rows={parts} total={parts.length}
                 rowKey={(part) => part.verdict || part.kind}
                 columns={[
                   { head: 'part', cell: (part) => <span class="named"><span class={`swatch ${colour(part, parts.indexOf(part))}`} />{part.name}{part.state === 'suspected' && ' · suspected'}{part.state === 'cleared' && ' · over'}</span> },
                   { head: 'share of the loss', numeric: true, cell: (part) => percent(part.share) },
                   { head: 'lost', numeric: true, cell: (part) => gpuTime(part.lost_gpu_seconds) || '0' },
                   ...(priced ? [{ head: 'money', numeric: true, cell: (part: CostPart) => coins(part.lost_money) }] : []),
                   { head: 'acts in', numeric: true, cell: (part) => (part.kind === 'unexplained' ? '–' : `${count(part.steps)} of ${count(cost.steps)} steps`) },
                 ]} />
          {!cost.money && <p class="muted">What this costs in money: start lockstepd with --gpu-hour-price.</p>}
        </>
      )}
    </section>
  );
}

export function MfuCard({ job, mfu }: { job: string; mfu: Mfu }) {
  const shown = mfu.bars.filter((bar) => Math.abs(bar.points) >= 0.0005);
  const places = falls(shown);
  return (
    <section class="card charts" aria-label="MFU">
      <div class="chart-head">
        <h2>Why is MFU what it is?</h2>
        <span class="muted">steps {count(mfu.from_step)}–{count(mfu.to_step)}, {count(mfu.ranks_counted)} of {count(mfu.ranks)} ranks</span>
        <Menu label="Menu of MFU" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.mfu(job))) },
          { label: 'Copy as CLI', run: () => copy(mfuCommand(job)) },
          { label: 'Download CSV', run: () => download(`${job}-mfu.csv`, mfuCsv(mfu)) },
        ]} />
      </div>
      <p class="answer">{mfu.sentence}</p>
      {mfu.change && (
        <>
          <p>{mfu.change.sentence}</p>
          {mfu.change.what.length > 0 && <ul class="changes">{mfu.change.what.map((what) => <li key={what}>{what}</li>)}</ul>}
        </>
      )}
      {mfu.next && <p><span class="muted">First thing to do:</span> {mfu.next}.</p>}
      {shown.length > 0 && (
        <table class="waterfall">
          <caption class="offscreen">From the peak to MFU, in points</caption>
          <thead class="offscreen"><tr><th scope="col">goes to</th><th scope="col">points</th><th scope="col">bar</th></tr></thead>
          <tbody>
            <tr><th scope="row">peak</th><td class="number">100.0</td><td class="bar-place"><Bar from={0} to={1} kind="peak" /><span class="muted">{peakWords(mfu)}</span></td></tr>
            {shown.map((bar, index) => [
              <tr key={bar.key}>
                <th scope="row">{bar.words}</th>
                <td class="number">{points(bar)}</td>
                <td class="bar-place"><Bar {...places[index]!} kind={bar.key} />{bar.note && <span class="muted note">{bar.note}</span>}</td>
              </tr>,
              ...partsOf(bar, places[index]!.to),
            ])}
            <tr class="total"><th scope="row">achieved: MFU</th><td class="number">{mfu.mfu === null ? '?' : (100 * mfu.mfu).toFixed(1)}</td>
              <td class="bar-place">{mfu.mfu !== null && <Bar from={0} to={mfu.mfu} kind="achieved" />}{mfu.flops_from === '6NT' && <span class="muted note">FLOPs: 6 × parameters × tokens</span>}</td></tr>
          </tbody>
        </table>
      )}
    </section>
  );
}

function Bar({ from, to, kind }: { from: number; to: number; kind: string }) {
  return <span class="fall"><span class={`mfu-${kind}`} style={{ left: `${100 * from}%`, width: `${100 * (to - from)}%` }} /></span>;
}

// What a bar is made of, below it.
function partsOf(bar: MfuBar, top: number): JSX.Element[] {
  const places = falls(bar.parts, top);
  return bar.parts.map((part, index) => (
    <tr key={`${bar.key} ${part.key}`} class="part">
      <th scope="row" class="muted">· {part.words}</th>
      <td class="number muted">{points(part)}</td>
      <td class="bar-place"><Bar {...places[index]!} kind={bar.key} /></td>
    </tr>
  ));
}

function points(bar: { points: number }): string {
  return bar.points < 0 ? `+${(-100 * bar.points).toFixed(1)}` : `−${(100 * bar.points).toFixed(1)}`;
}

function peakWords({ peak }: Mfu): string {
  if (peak.from === 'unknown' || peak.tflops === null) return `peak of ${peak.gpu || 'this GPU'} is not known`;
  const source = peak.from === 'job' ? 'as the job reports' : peak.from === 'server' ? 'as the server was told' : `${peak.gpu}, ${peak.precision}`;
  return `${number(peak.tflops)} TFLOP/s a GPU, ${source}`;
}

// In whatever currency the price was given.
function coins(value: number | null): string {
  return value === null ? '–' : value >= 100 ? count(value) : value.toFixed(2);
}

function colour(part: CostPart, index: number): string {
  return part.kind === 'unexplained' ? 'hatched' : part.kind === 'told' ? 'part-checkpoint' : part.kind === 'start' ? 'part-other' : `cause-${index % kColours}`;
}

function costCsv(cost: Cost): string {
  return csv(['part', 'kind', 'share', 'lost_gpu_seconds', 'money', 'steps'],
    cost.parts.map((part) => [part.name, part.kind, part.share, part.lost_gpu_seconds, part.lost_money, part.steps]));
}

function mfuCsv(mfu: Mfu): string {
  return csv(['bar', 'points', 'known', 'note'], [
    ...mfu.bars.flatMap((bar) => [
      [bar.key, 100 * bar.points, bar.known ? 'yes' : 'no', bar.note],
      ...bar.parts.map((part) => [`${bar.key}: ${part.key}`, 100 * part.points, 'yes', part.words]),
    ]),
    ['achieved', mfu.mfu === null ? null : 100 * mfu.mfu, mfu.mfu === null ? 'no' : 'yes', ''],
  ]);
}
