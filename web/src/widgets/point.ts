// What the reader points at, shared by all charts of a page. By step and rank, not by pixel: it stays on its cell while new
// data moves the columns.
import type { Signal } from '@preact/signals';

export interface Point {
  step: number;
  rank: number | null;
}
export type PointSignal = Signal<Point | null>;
