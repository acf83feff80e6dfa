/** Least absolute relative deviation with weights that are never negative: what the estimator is fitted with. */

export interface Sample {
  /** occurrences of each feature */
  features: ArrayLike<number>;
  /** tokens the whole weighed, more than 0 */
  tokens: number;
  /** tokens of it that are known and need no fit */
  known?: number;
  /** importance, 1 for most */
  importance: number;
}

/** Relative error below which a sample pulls no harder: keeps the weights finite where the fit is exact. */
const FLOOR = 0.01;
const ROUNDS = 60;
const SWEEPS = 200;

/**
 * Weights that minimise the sum of |estimate − tokens| / tokens, by reweighted least squares and coordinate descent.
 * `prior` is where weights are pulled, `pulls` how strongly, as a share of each feature's own evidence.
 */
export function fitRelative(samples: Sample[], prior: readonly number[], pulls: readonly number[]): number[] {
  let weights = [...prior];
  for (let round = 0; round < ROUNDS; round++)
    weights = solve(normalEquations(samples, weights), weights, prior, pulls);
  return weights;
}

interface Equations {
  matrix: Float64Array[];
  vector: Float64Array;
}

function normalEquations(samples: Sample[], weights: number[]): Equations {
  const size = weights.length;
  const matrix = Array.from({ length: size }, () => new Float64Array(size));
  const vector = new Float64Array(size);
  for (const { features, tokens, known = 0, importance } of samples) {
    const error = Math.abs(known + dot(features, weights) - tokens) / tokens;
    const force = importance / (tokens * tokens * Math.max(error, FLOOR));
    for (let j = 0; j < size; j++) {
      const share = force * features[j]!;
      if (share === 0) continue;
      vector[j]! += share * (tokens - known);
      for (let k = 0; k < size; k++) matrix[j]![k]! += share * features[k]!;
    }
  }
  return { matrix, vector };
}

function solve(
  { matrix, vector }: Equations,
  start: number[],
  prior: readonly number[],
  pulls: readonly number[],
): number[] {
  const weights = [...start];
  // A constant so small that only a feature without any evidence feels it: such a weight is its prior's.
  const own = matrix.map((row, j) => row[j]! * pulls[j]! + 1e-9);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (let j = 0; j < weights.length; j++) {
      let rest = vector[j]! + own[j]! * prior[j]!;
      for (let k = 0; k < weights.length; k++) if (k !== j) rest -= matrix[j]![k]! * weights[k]!;
      weights[j] = Math.max(0, rest / (matrix[j]![j]! + own[j]!));
    }
  }
  return weights;
}

export function dot(features: ArrayLike<number>, weights: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) sum += features[i]! * weights[i]!;
  return sum;
}
