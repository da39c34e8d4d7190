// A line in a row of a table: how a number went, without an axis. Its range is told to whoever cannot see it, and on hover.
import { duration } from '../base/format';
import { trendPathData, type Trend } from '../base/trend';

const kWidth = 72;
const kHeight = 20;
const kMinutesMin = 5;  // of sixty: less is a speck, not a line

export function Spark({ trend }: { trend: Trend | undefined }) {
  const known = trend?.filter((value): value is number => value !== null) ?? [];
  if (!trend || known.length < kMinutesMin) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const words = `last hour: ${duration(low)} to ${duration(high)} a step`;
  return (
    <span class="spark-box">
      <svg class="spark" width={kWidth} height={kHeight} role="img" aria-label={words}>
        <title>{words}</title>
        <path d={trendPathData(trend, kWidth, kHeight)} />
      </svg>
      <span class="spark-range muted" aria-hidden="true">{duration(low)}–{duration(high)}</span>
    </span>
  );
}
