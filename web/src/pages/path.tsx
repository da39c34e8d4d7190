// The way from one GPU to another: what stands out on it in one sentence, then every hop in a row, then the numbers of every port on it
// beside its siblings', then the pairs beside it.
import { useState } from 'preact/hooks';
import { paths } from '../base/api';
import { endText, kHopMeasures, kMeasureWords, oddPorts, portsOf, valueText, type FabricPath, type HopMeasure, type HopValue, type OddPort } from '../base/fabric';
import { clean, clock, count, utc } from '../base/format';
import { useKeys } from '../base/hooks';
import { copy, curl, pathCommand } from '../base/share';
import { fabricPlace, go, jobPlace, type PathPlace } from '../base/url';
import { Frame, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { MomentField } from '../widgets/moment_field';
import { usePathData } from './path_data';
import { PathPicture } from './path_picture';
import { PortTable, SiblingPairs } from './path_tables';
import '../style/fabric.css';

export function PathPage({ place }: { place: PathPlace }) {
  const data = usePathData(place);
  const path = data.path.value;
  const isAsked = place.a !== '' && place.b !== '';
  useKeys((key) => {
    if (key !== 'Escape') return false;
    go(place.job ? jobPlace(place.job) : fabricPlace());
    return true;
  });
  const what = path ? `${endText(path.a)} → ${endText(path.b)}` : isAsked ? `${clean(place.a)} → ${clean(place.b)}` : 'Path';
  document.title = `${what} · Lockstep`;
  const crumbs: Crumb[] = [
    { label: 'Fleet', to: { page: 'fleet' } },
    ...(place.job ? [{ label: clean(place.job), to: jobPlace(place.job) }] : []),
    { label: 'Fabric', to: fabricPlace(place.job ? `job:${place.job}` : '') },
    { label: what, to: place },
  ];
  return (
    <Frame crumbs={crumbs} state={path && <span title={utc(path.at_unix_ns)}>{place.at === null ? 'now' : `as it was at ${clock(path.at_unix_ns, true)}`}</span>}>
      <section class={`card verdict ${isAsked && path && oddPorts(path).length > 0 ? 'tone-doubt' : 'tone-quiet'}`} aria-label="Answer">
        <div class="chart-head">
          <Ends key={`${place.a}\n${place.b}\n${place.job}`} place={place} />
          <MomentField at={place.at} onAt={(at) => go({ ...place, at })} />
          <Menu label="Menu of the path" items={[
            { label: 'Copy as curl', run: () => copy(curl(paths.path(place))) },
            { label: 'Copy as CLI', run: () => copy(pathCommand(place)) },
          ]} />
        </div>
        {data.refused.value && isAsked && <h2 class="sentence" role="alert">{data.refused.value}</h2>}
        {!isAsked && <h2 class="sentence">Which way do two GPUs talk? Name two ranks of a job, or GPUs as HOST:gpu0.</h2>}
        {isAsked && !path && !data.refused.value && <Loading what="the way" />}
        {isAsked && path && !data.refused.value && <Answer path={path} />}
      </section>
      {isAsked && path && !data.refused.value && (
        <>
          <PathPicture path={path} />
          <PortTable path={path} />
          <SiblingPairs {...{ path, place }} siblings={data.siblings.value} />
        </>
      )}
    </Frame>
  );
}

function Ends({ place }: { place: PathPlace }) {
  const [a, setA] = useState(place.a);
  const [b, setB] = useState(place.b);
  const [job, setJob] = useState(place.job);
  const isReady = a.trim() !== '' && b.trim() !== '';
  return (
    <form class="controls" onSubmit={(event) => {
      event.preventDefault();
      if (isReady) go({ ...place, a: a.trim(), b: b.trim(), job: job.trim(), qp: '', sourcePort: '' });
    }}>
      <label>from <input type="text" value={a} size={14} placeholder="5, node-01:gpu0" onInput={(event) => setA(event.currentTarget.value)} /></label>
      <label>to <input type="text" value={b} size={14} placeholder="21, node-17:gpu0" onInput={(event) => setB(event.currentTarget.value)} /></label>
      <label>of job <input type="text" value={job} size={16} placeholder="for ranks" onInput={(event) => setJob(event.currentTarget.value)} /></label>
      <button type="submit" disabled={!isReady}>Show</button>
      <button type="button" class="plain" disabled={!isReady} title="The way back may be another one"
              onClick={() => go({ ...place, a: place.b, b: place.a, qp: place.qp.split(',').reverse().join(','), sourcePort: '' })}>the way back</button>
    </form>
  );
}

const kOddShown = 4;

function Answer({ path }: { path: FabricPath }) {
  const odd = oddPorts(path);
  return (
    <>
      <h2 class="sentence">{odd.length > 0 ? oddSentence(odd[0]!, path) : path.sentence}</h2>
      {odd.length > 0 && <p>{path.sentence}</p>}
      {odd.length === 0 && path.hops.length > 0 && (
        <p class="muted">{portsOf(path).length > 0 ? 'No port on it stands out from its siblings.' : 'Whether a port on it stands out is not known: nobody reports their counters.'}</p>
      )}
      {odd.length > 0 && (
        <ul class="evidence">
          {odd.slice(0, kOddShown).map(({ port, values }) => (
            <li key={`${port.hop.position}/${port.name}`}>
              <b><span aria-hidden="true">▲ </span>{port.name}</b>: {values.map((value, index) => (
                <span key={index} title={value.metric}>{index > 0 && ', '}{valueWords(value)} <span class="muted">(siblings {valueText(value, value.siblings ?? 0)})</span></span>
              ))}
            </li>
          ))}
          {odd.length > kOddShown && <li class="muted">and {count(odd.length - kOddShown)} more ports below</li>}
        </ul>
      )}
      {path.notes.map((note) => <p key={note} class="muted">Note: {note}</p>)}
      {path.hopsLeftOut > 0 && <p class="muted">{count(path.hopsLeftOut)} hops side by side are left out.</p>}
    </>
  );
}

function valueWords(value: HopValue): string {
  const word = kHopMeasures.some((one) => one === value.meaning) ? kMeasureWords[value.meaning as HopMeasure] : value.meaning;
  return [word, value.direction, valueText(value)].filter(Boolean).join(' ');
}

function oddSentence({ port, values }: OddPort, path: FabricPath): string {
  const where = port.hop.share < 0.9999 ? `, on one of ${count(path.equalPaths)} equal ways,` : '';
  return `${port.name}${where} stands out: ${valueWords(values[0]!)}, its siblings ${valueText(values[0]!, values[0]!.siblings ?? 0)}.`;
}
