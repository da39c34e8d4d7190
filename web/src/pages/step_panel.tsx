// One step: who was slow in it. The numbers are those of the heat map.
import { count, duration, excess } from '../base/format';
import { cell, kParts, type StepMatrix } from '../base/matrix';
import { stepPlace, type JobPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';
import { HostLink } from '../widgets/place_links';
import { Facts, Panel } from './panel';

interface Props {
  place: JobPlace;
  step: number;
  matrix: StepMatrix | null;
  traced: ReadonlySet<number>;
  onRank: (rank: number) => void;
  onClose: () => void;
}

const kShown = 12;

export function StepPanel({ place, step, matrix, traced, onRank, onClose }: Props) {
  const column = matrix ? matrix.steps.indexOf(step) : -1;
  return (
    <Panel title={`Step ${count(step)}`} onClose={onClose}>
      <OpenStep {...{ job: place.job, step, rank: null, traced }} />
      {!matrix || column < 0
        ? <p class="muted">Step {count(step)} is not among the steps shown. Ask for more with “last”.</p>
        : <Content {...{ matrix, column, onRank }} />}
    </Panel>
  );
}

// The way down to all ranks of the step on one axis, and whether there is anything to see yet.
function OpenStep({ job, step, rank, traced }: { job: string; step: number; rank: number | null; traced: ReadonlySet<number> }) {
  return (
    <p>
      <PlaceLink class="button" to={{ ...stepPlace(job, step), rank }}>Open step {count(step)}</PlaceLink>{' '}
      <span class="muted">{traced.size > 0 && !traced.has(step) ? 'no detail of its ranks yet; it can be asked for there' : '▴ every rank on one axis (Enter)'}</span>
    </p>
  );
}

function Content({ matrix, column, onRank }: { matrix: StepMatrix; column: number; onRank: (rank: number) => void }) {
  const heard = matrix.ranks.flatMap((rank, row) => {
    const over = cell(matrix.excess, matrix, row, column);
    return over === null ? [] : [{ rank, host: matrix.hosts[row]!, over }];
  }).sort((a, b) => b.over - a.over);
  const silent = matrix.ranks.length - heard.length;
  return (
    <>
      <Facts rows={[['median step', duration(matrix.stepMs[column])], ...kParts.filter((part) => matrix.parts[part][column]! > 0).map((part): [string, string] => [part, duration(matrix.parts[part][column])])]} />
      <h3>Slowest ranks in this step</h3>
      <table class="facts">
        <tbody>
          {heard.slice(0, kShown).map((row) => (
            <tr key={row.rank}>
              <th scope="row"><button type="button" class="plain" onClick={() => onRank(row.rank)}>rank {count(row.rank)}</button></th>
              <td><HostLink host={row.host} none="" /></td>
              <td class="number">{excess(row.over)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="muted">
        {count(Math.min(kShown, heard.length))} of {count(matrix.ranks.length)} ranks, slowest first
        {silent > 0 && `; nothing heard of ${count(silent)}`}
      </p>
    </>
  );
}
