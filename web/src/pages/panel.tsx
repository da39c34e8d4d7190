// The side panel: details beside the charts, so that the place is kept. On a narrow screen it lies over them.
import type { ComponentChildren } from 'preact';

export function Panel({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  return (
    <aside class="panel card" aria-label={title}>
      <div class="panel-head">
        <h2>{title}</h2>
        <button type="button" class="plain" onClick={onClose} aria-label="Close the panel" title="Close (Esc)">✕</button>
      </div>
      {children}
    </aside>
  );
}

export function Facts({ rows, head }: { rows: [string, string, string?][]; head?: [string, string, string?] }) {
  const third = rows.some((row) => row[2] !== undefined);
  return (
    <table class="facts">
      {head && <thead><tr><td />{head.slice(1).map((text) => <th key={text} scope="col" class="number">{text}</th>)}</tr></thead>}
      <tbody>
        {rows.map(([name, value, peers]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{value}</td>
            {third && <td class="number muted">{peers ?? ''}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
