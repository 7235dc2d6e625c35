//! Coding matrices: which combination of the data each coding chunk is.

use crate::gf::Field;

/// Rows over a [`Field`].
pub(crate) type Rows = Vec<Vec<u32>>;

/// jerasure's `reed_sol_van`: `m` rows of a systematic Vandermonde matrix whose first row
/// and first column are ones. Needs `k + m <= 2^w`.
pub(crate) fn vandermonde(field: Field, k: usize, m: usize) -> Rows {
    let rows = k + m;
    // Row i is the powers of i; the first and the last are unit vectors.
    let mut v: Rows = (0..rows)
        .map(|i| {
            let mut power = 1;
            (0..k)
                .map(|j| {
                    if i + 1 == rows {
                        return u32::from(j + 1 == k);
                    }
                    let now = power;
                    power = field.mul(power, i as u32);
                    now
                })
                .collect()
        })
        .collect();
    // By column operations the top becomes the identity.
    for i in 1..k {
        let pivot = (i..rows).find(|&r| v[r][i] != 0).expect("rank k: k + m <= 2^w");
        v.swap(i, pivot);
        let scale = field.inv(v[i][i]);
        for row in &mut v {
            row[i] = field.mul(scale, row[i]);
        }
        for j in (0..k).filter(|&j| j != i) {
            let factor = v[i][j];
            for row in &mut v {
                row[j] ^= field.mul(factor, row[i]);
            }
        }
    }
    let mut coding = v.split_off(k);
    for j in 0..k {
        let scale = field.inv(coding[0][j]);
        for row in &mut coding {
            row[j] = field.mul(scale, row[j]);
        }
    }
    for row in &mut coding[1..] {
        let scale = field.inv(row[0]);
        for cell in row {
            *cell = field.mul(*cell, scale);
        }
    }
    coding
}

/// jerasure's `reed_sol_r6_op`: the sum, and the sum with powers of two.
pub(crate) fn raid6(field: Field, k: usize) -> Rows {
    vec![vec![1; k], powers(field, 2, k)]
}

fn powers(field: Field, base: u32, k: usize) -> Vec<u32> {
    std::iter::successors(Some(1), |&p| Some(field.mul(p, base))).take(k).collect()
}

/// jerasure's `cauchy_orig`: `1 / (i ^ (m + j))`. Needs `k + m <= 2^w`.
pub(crate) fn cauchy(field: Field, k: usize, m: usize) -> Rows {
    (0..m).map(|i| (0..k).map(|j| field.inv((i ^ (m + j)) as u32)).collect()).collect()
}

/// jerasure's `cauchy_good`: a Cauchy matrix with few ones in its bit-matrix.
pub(crate) fn cauchy_good(field: Field, k: usize, m: usize) -> Rows {
    let w = field.width();
    // For two coding chunks jerasure has tables up to w = 11: the elements by their ones.
    if m == 2 && w <= 11 && k <= ((1 << w.min(10)) - 1) {
        let mut best: Vec<u32> = (1..1 << w).collect();
        best.sort_by_key(|&n| (field.ones(n), n));
        best.truncate(k);
        return vec![vec![1; k], best];
    }
    let mut rows = cauchy(field, k, m);
    for j in 0..k {
        let scale = field.inv(rows[0][j]);
        for row in &mut rows {
            row[j] = field.mul(row[j], scale);
        }
    }
    for row in &mut rows[1..] {
        // Divide by the element that leaves the fewest ones, the first among equals.
        let ones = |scale: u32| row.iter().map(|&n| field.ones(field.mul(n, scale))).sum::<u32>();
        let mut best = (ones(1), 1);
        for &n in row.iter().filter(|&&n| n != 1) {
            let scale = field.inv(n);
            let count = ones(scale);
            if count < best.0 {
                best = (count, scale);
            }
        }
        for cell in row.iter_mut() {
            *cell = field.mul(*cell, best.1);
        }
    }
    rows
}

/// isa-l's `gf_gen_rs_matrix`: row `i` is the powers of `2^i`.
pub(crate) fn isa_vandermonde(k: usize, m: usize) -> Rows {
    powers(Field::BYTES, 2, m).into_iter().map(|base| powers(Field::BYTES, base, k)).collect()
}

/// isa-l's `gf_gen_cauchy1_matrix`: `1 / (i ^ j)`, `i` counted behind the data.
pub(crate) fn isa_cauchy(k: usize, m: usize) -> Rows {
    (k..k + m).map(|i| (0..k).map(|j| Field::BYTES.inv((i ^ j) as u32)).collect()).collect()
}

/// The bit-matrix of a matrix: each element becomes `w` by `w` bits, whose column `x` is
/// the element times `2^x`. jerasure's `jerasure_matrix_to_bitmatrix`.
pub(crate) fn to_bits(field: Field, rows: &Rows) -> Rows {
    let w = field.width();
    let mut bits = Vec::new();
    for row in rows {
        for l in 0..w {
            let cells = row.iter().flat_map(|&n| (0..w).map(move |x| field.mul(n, 1 << x)));
            bits.push(cells.map(|n| n >> l & 1).collect());
        }
    }
    bits
}

/// Bit-matrices of two coding chunks, the first of which is the sum: `second(j, row)`
/// names the ones of chunk `j` in a row of the second.
fn two_rows(k: usize, w: usize, second: impl Fn(usize, usize) -> Vec<usize>) -> Rows {
    let mut rows = vec![vec![0; k * w]; 2 * w];
    for j in 0..k {
        for i in 0..w {
            rows[i][j * w + i] = 1;
            for x in second(j, i) {
                rows[w + i][j * w + x] = 1;
            }
        }
    }
    rows
}

/// Plank's Liberation codes; `w` prime, `k <= w`.
pub(crate) fn liberation(k: usize, w: usize) -> Rows {
    two_rows(k, w, |j, i| {
        let mut ones = vec![(j + i) % w];
        if j > 0 && i == j * ((w - 1) / 2) % w {
            ones.push((i + j - 1) % w);
        }
        ones
    })
}

/// Blaum-Roth codes; `w + 1` prime, `k <= w`.
pub(crate) fn blaum_roth(k: usize, w: usize) -> Rows {
    let p = w + 1;
    two_rows(k, w, |j, i| {
        let l = i + 1;
        if j == 0 {
            return vec![i];
        }
        if l != p - j {
            return vec![(l + j) % p - 1];
        }
        let half = if j % 2 == 0 { j / 2 } else { p / 2 + 1 + j / 2 };
        vec![j - 1, half - 1]
    })
}

/// Plank's Liber8tion code: `w = 8`, `k <= 8`. Found by search, hence a table: per chunk a
/// permutation, and one more bit (row, column).
pub(crate) fn liber8tion(k: usize) -> Rows {
    const CHUNKS: [([usize; 8], (usize, usize)); 8] = [
        ([0, 1, 2, 3, 4, 5, 6, 7], (0, 0)),
        ([7, 3, 0, 2, 6, 1, 5, 4], (4, 7)),
        ([6, 2, 4, 0, 7, 3, 1, 5], (1, 3)),
        ([2, 5, 7, 6, 0, 3, 4, 1], (5, 4)),
        ([5, 6, 1, 7, 2, 4, 3, 0], (2, 0)),
        ([1, 2, 3, 4, 5, 6, 7, 0], (7, 2)),
        ([3, 0, 6, 5, 1, 7, 4, 2], (6, 5)),
        ([4, 7, 1, 5, 3, 2, 0, 6], (3, 1)),
    ];
    two_rows(k, 8, |j, i| {
        let (columns, extra) = CHUNKS[j];
        let mut ones = vec![columns[i]];
        if i == extra.0 {
            ones.push(extra.1);
        }
        ones
    })
}

/// The inverse of a square matrix, by Gauss and Jordan; `None` when it has none.
pub(crate) fn invert(field: Field, mut a: Rows) -> Option<Rows> {
    let n = a.len();
    let mut inverse: Rows = (0..n).map(|i| (0..n).map(|j| u32::from(i == j)).collect()).collect();
    for i in 0..n {
        let pivot = (i..n).find(|&r| a[r][i] != 0)?;
        a.swap(i, pivot);
        inverse.swap(i, pivot);
        let scale = field.inv(a[i][i]);
        for cell in a[i].iter_mut().chain(&mut inverse[i]) {
            *cell = field.mul(*cell, scale);
        }
        for r in (0..n).filter(|&r| r != i) {
            let factor = a[r][i];
            if factor != 0 {
                let (from, to) = (a[i].clone(), &mut a[r]);
                add_scaled(field, to, &from, factor);
                let (from, to) = (inverse[i].clone(), &mut inverse[r]);
                add_scaled(field, to, &from, factor);
            }
        }
    }
    Some(inverse)
}

/// `to += factor * from`.
pub(crate) fn add_scaled(field: Field, to: &mut [u32], from: &[u32], factor: u32) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to ^= field.mul(factor, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heads of tables that jerasure carries, to see that sorting gives the same.
    #[test]
    fn best_elements() {
        let best = |w, k| cauchy_good(Field::new(w).unwrap(), k, 2)[1].clone();
        assert_eq!(best(4, 8), [1, 2, 9, 4, 8, 13, 3, 6]);
        assert_eq!(best(8, 12), [1, 2, 142, 4, 71, 8, 70, 173, 3, 35, 143, 16]);
        assert_eq!(best(10, 11), [1, 2, 516, 4, 258, 8, 129, 16, 32, 580, 64]);
    }

    /// A matrix times its inverse is the identity; a singular one has none.
    #[test]
    fn inverts() {
        let field = Field::BYTES;
        let a = cauchy(field, 5, 5);
        let b = invert(field, a.clone()).expect("Cauchy matrices are regular");
        for (i, row) in a.iter().enumerate() {
            let mut product = vec![0; 5];
            for (x, &cell) in row.iter().enumerate() {
                add_scaled(field, &mut product, &b[x], cell);
            }
            assert!(product.iter().enumerate().all(|(j, &n)| n == u32::from(i == j)));
        }
        assert_eq!(invert(field, vec![vec![3, 5], vec![3, 5]]), None);
    }
}
