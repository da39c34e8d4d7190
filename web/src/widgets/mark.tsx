import type { Mark } from '../base/health';

// A glyph and its word; the glyph is decoration to a screen reader.
export function MarkView({ mark, upper = false }: { mark: Mark; upper?: boolean }) {
  return (
    <span class={`mark tone-${mark.tone}${upper ? ' upper' : ''}`}>
      <span aria-hidden="true">{mark.glyph} </span>
      {mark.word}
    </span>
  );
}
