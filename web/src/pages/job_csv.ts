// The numbers behind the charts, for a spreadsheet.
import { cell, kParts, type StepMatrix } from '../base/matrix';
import { csv, type CsvCell } from '../base/share';

const known = (value: number | undefined): CsvCell => (value === undefined || Number.isNaN(value) ? null : value);

export function stepsCsv(matrix: StepMatrix): string {
  return csv(['step', 'step_ms', ...kParts.map((part) => `${part}_ms`)], matrix.steps.map((step, column) => [
    step, known(matrix.stepMs[column]), ...kParts.map((part) => known(matrix.parts[part][column])),
  ]));
}

export function cellsCsv(matrix: StepMatrix): string {
  const lines = matrix.ranks.flatMap((rank, row) => matrix.steps.map((step, column): CsvCell[] => [
    rank, matrix.hosts[row]!, step, cell(matrix.duration, matrix, row, column), cell(matrix.self, matrix, row, column),
    cell(matrix.excess, matrix, row, column), cell(matrix.input, matrix, row, column),
  ]));
  return csv(['rank', 'host', 'step', 'duration_ms', 'self_ms', 'excess_ms', 'input_ms'], lines);
}
