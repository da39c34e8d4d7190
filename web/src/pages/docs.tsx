// A page of docs/, as the server has it: it can be read where nothing outside can be reached.
import { useEffect, useState } from 'preact/hooks';
import { documentLink, parseMarkdown, type Block, type Inline } from '../base/markdown';
import { rooted } from '../base/root';
import { docsPlace, writePlace, type DocsPlace } from '../base/url';
import { Frame, PlaceLink, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import '../style/docs.css';

const kIndex = 'README';

type Answer = { document: string; blocks: Block[] } | { document: string; failed: string };

async function load(document: string): Promise<Answer> {
  try {
    const answer = await fetch(rooted(`/docs/${document}.md`));
    if (answer.ok) return { document, blocks: parseMarkdown(await answer.text()) };
    return { document, failed: answer.status === 404 ? `There is no document ${document}.` : `The server answers ${answer.status}.` };
  } catch {
    return { document, failed: 'The server does not answer.' };
  }
}

export function DocsPage({ place }: { place: DocsPlace }) {
  const wanted = place.document || kIndex;
  const [answer, setAnswer] = useState<Answer | null>(null);
  useEffect(() => {
    let gone = false;
    void load(wanted).then((one) => {
      if (!gone) setAnswer(one);
    });
    return () => { gone = true; };
  }, [wanted]);
  const here = answer?.document === wanted ? answer : null;
  const blocks = here && 'blocks' in here ? here.blocks : null;
  const title = blocks?.find((block) => block.kind === 'heading');
  const name = title && 'text' in title && typeof title.text !== 'string' ? title.text.map((part) => part.text).join('') : wanted;
  document.title = `${name} · Lockstep`;
  useEffect(() => {
    const part = decodeURIComponent(location.hash.slice(1));
    if (blocks) (part ? document.getElementById(part) : null)?.scrollIntoView();
    if (blocks && !part) window.scrollTo(0, 0);
  }, [here]);
  const crumbs: Crumb[] = [{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Documents', to: docsPlace() }];
  if (wanted !== kIndex) crumbs.push({ label: wanted.slice(wanted.lastIndexOf('/') + 1), to: place });
  return (
    <Frame crumbs={crumbs}>
      {!here && <Loading what="the document" />}
      {here && 'failed' in here && <section class="card"><h2 class="sentence" role="alert">{here.failed}</h2></section>}
      {blocks && <article class="card document">{blocks.map((block, index) => <BlockView key={index} block={block} document={wanted} />)}</article>}
    </Frame>
  );
}

function BlockView({ block, document }: { block: Block; document: string }) {
  const text = (parts: Inline[]) => parts.map((part, index) => <InlineView key={index} part={part} document={document} />);
  switch (block.kind) {
    case 'heading':
      return block.level === 1 ? <h2 id={block.id}>{text(block.text)}</h2> : <h3 id={block.id}>{text(block.text)}</h3>;
    case 'paragraph':
      return <p>{text(block.text)}</p>;
    case 'code':
      return <pre tabIndex={0}><code>{block.text}</code></pre>;
    case 'list': {
      const items = block.items.map((item, index) => <li key={index}>{text(item)}</li>);
      return block.ordered ? <ol>{items}</ol> : <ul>{items}</ul>;
    }
    case 'table':
      return (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table">
          <table>
            <thead><tr>{block.head.map((cell, index) => <th key={index} scope="col">{text(cell)}</th>)}</tr></thead>
            <tbody>{block.rows.map((row, at) => <tr key={at}>{row.map((cell, index) => <td key={index}>{text(cell)}</td>)}</tr>)}</tbody>
          </table>
        </div>
      );
  }
}

function InlineView({ part, document }: { part: Inline; document: string }) {
  if (part.kind === 'code') return <code>{part.text}</code>;
  if (part.kind === 'bold') return <strong>{part.text}</strong>;
  if (part.kind === 'italic') return <em>{part.text}</em>;
  if (part.kind !== 'link') return <>{part.text}</>;
  const to = documentLink(document, part.href);
  if (!to) return <>{part.text}</>;
  if ('url' in to) return <a href={to.url} rel="noreferrer">{part.text}</a>;
  return to.part ? <a href={`${writePlace(docsPlace(to.document))}#${to.part}`}>{part.text}</a> : <PlaceLink to={docsPlace(to.document)}>{part.text}</PlaceLink>;
}
