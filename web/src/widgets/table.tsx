// A table that says what it leaves out and turns its pages. The twin of a chart: the same numbers, for reading and for screen
// readers.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { count } from '../base/format';

export interface Column<Row> {
  head: string;
  unit?: string;
  numeric?: boolean;
  wide?: boolean;  // sentences: they are broken into lines
  cell: (row: Row) => ComponentChildren;
}

interface Props<Row> {
  caption: string;
  what: string;    // "ranks"
  sorted: string;  // "worst first"
  columns: Column<Row>[];
  rows: readonly Row[];
  total: number;   // what exists, of which `rows` may be a part
  rowKey: (row: Row) => string | number;
  marked?: (row: Row) => boolean;
  chosen?: (row: Row) => boolean;  // by the reader; the first such row turns the page to itself
  pageRows?: number;
}

const kPageRows = 32;

export function Table<Row>({ caption, what, sorted, columns, rows, total, rowKey, marked, chosen, pageRows = kPageRows }: Props<Row>) {
  const [asked, setPage] = useState(0);
  const at = chosen ? rows.findIndex(chosen) : -1;
  useEffect(() => { if (at >= 0) setPage(Math.floor(at / pageRows)); }, [at, pageRows]);
  const pages = Math.max(1, Math.ceil(rows.length / pageRows));
  const page = Math.min(asked, pages - 1);
  const from = page * pageRows;
  const shown = rows.slice(from, from + pageRows);
  const places = rows.length === 0 ? `No ${what}` : `${count(from + 1)}–${count(from + shown.length)} of ${count(total)} ${what}, ${sorted}`;
  return (
    <div class="table">
      <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <caption class="offscreen">{caption}</caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column.head} scope="col" class={column.numeric ? 'number' : undefined}>
                  {column.head}{column.unit && <span class="muted"> {column.unit}</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={rowKey(row)} class={chosen?.(row) ? 'chosen' : marked?.(row) ? 'marked' : undefined}>
                {columns.map((column) => (
                  <td key={column.head} class={column.numeric ? 'number' : column.wide ? 'wide' : undefined}>{column.cell(row)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="pager">
        <span class="muted">{places}{rows.length < total && `; the server sent ${count(rows.length)}`}</span>
        {pages > 1 && (
          <>
            <button type="button" onClick={() => setPage(page - 1)} disabled={page === 0}>Previous</button>
            <button type="button" onClick={() => setPage(page + 1)} disabled={page === pages - 1}>Next</button>
          </>
        )}
      </div>
    </div>
  );
}
