// The hops of a path in a row: boxes for what stands there, lines for links; ways side by side stand below each other. Dashed: nobody saw
// the way go there. ▲: something of it stands out.
import { useState } from 'preact/hooks';
import { endText, hopRows, isGuess, oddOf, sureText, valueText, type FabricPath, type Hop } from '../base/fabric';
import { clip, count, percent } from '../base/format';
import { fabricPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';

const kBesideMost = 4;
const kNameShown = 24;

export function PathPicture({ path }: { path: FabricPath }) {
  const [all, setAll] = useState(false);
  const rows = hopRows(path);
  if (rows.length === 0) return null;
  return (
    <section class="card" aria-label="Hops">
      <div class="chart-head">
        <h2>Which way, and how is it known?</h2>
        {path.hops.some(isGuess) && <span class="muted">dashed: one of several ways, not observed</span>}
      </div>
      <ol class="hops" tabIndex={0} aria-label="Hops in the order of the way">
        {rows.map((hops) => (
          <li key={hops[0]!.position} class={`${hops[0]!.kind === 'link' ? 'hop-links' : 'hop-nodes'}${hops.length > 1 ? ' beside' : ''}`}>
            {(all ? hops : hops.slice(0, kBesideMost)).map((hop) => <HopBox key={hop.name} {...{ hop, path }} />)}
            {!all && hops.length > kBesideMost && <button type="button" class="plain" onClick={() => setAll(true)}>{count(hops.length - kBesideMost)} more</button>}
          </li>
        ))}
      </ol>
    </section>
  );
}

function HopBox({ hop, path }: { hop: Hop; path: FabricPath }) {
  const odd = oddOf(hop);
  const title = [hop.name, sureText(hop), ...odd.map((value) => `${value.meaning} ${value.direction} ${valueText(value)}, siblings ${valueText(value, value.siblings ?? 0)}`)].filter(Boolean).join('\n');
  const facts = [hop.share < 0.9999 ? percent(hop.share) : '', hop.sure === 'possible' ? '' : sureText(hop), hop.gbit === null || hop.share < 0.9999 ? '' : `${count(hop.gbit)} Gbit/s`];
  return (
    <div class={`hop${isGuess(hop) ? ' guess' : ''}${odd.length > 0 ? ' odd' : ''}`} title={title}>
      {hop.kind === 'link' ? <LinkName hop={hop} isOdd={odd.length > 0} /> : <NodeName {...{ hop, path }} isOdd={odd.length > 0} />}
      <p class="muted">{facts.filter(Boolean).join(' · ') || ' '}</p>
    </div>
  );
}

const Odd = () => <span aria-hidden="true">▲ </span>;

function NodeName({ hop, path, isOdd }: { hop: Hop; path: FabricPath; isOdd: boolean }) {
  const end = hop.name === path.a.gpu ? path.a : hop.name === path.b.gpu ? path.b : null;
  return (
    <>
      {end && end.rank !== null && <p><b>rank {count(end.rank)}</b></p>}
      <p class="hop-name">{isOdd && <Odd />}<PlaceLink to={fabricPlace(`${hop.kind}:${hop.name}`)}>{end ? endText({ ...end, rank: null }) : clip(hop.name, kNameShown)}</PlaceLink></p>
    </>
  );
}

function LinkName({ hop, isOdd }: { hop: Hop; isOdd: boolean }) {
  if (hop.link === 'pcie') return <p>PCIe {hop.distance}</p>;
  if (hop.link === 'nvlink') return <p>NVLink</p>;
  return (
    <>
      <p class="hop-name">{isOdd && <Odd />}{portOf(hop.from)}</p>
      <p class="hop-name">{portOf(hop.to)}</p>
    </>
  );
}

// "leaf-7:Ethernet49" -> "Ethernet49": whose it is stands beside it.
const portOf = (name: string): string => clip(name.slice(name.indexOf(':') + 1), kNameShown);
