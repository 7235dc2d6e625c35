//! Arithmetic in GF(2^w), one element at a time: for matrices, not for data.

/// A field GF(2^w), `1 <= w <= 32`, elements being the low `w` bits of a `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    w: u32,
    poly: u64,
}

impl Field {
    /// GF(2): bits.
    pub(crate) const BITS: Field = Field { w: 1, poly: 3 };
    /// GF(2^8) over 0x11d, the field of byte-wise codes.
    pub(crate) const BYTES: Field = Field { w: 8, poly: 0x11d };

    /// The field the peer uses for words of `w` bits; `None` for widths not built.
    ///
    /// Source: default polynomials of gf-complete.
    pub(crate) fn new(w: u32) -> Option<Field> {
        const POLYS: [u64; 15] = [
            0x7, 0xb, 0x13, 0x25, 0x43, 0x89, 0x11d, 0x211, 0x409, 0x805, 0x1053, 0x201b, 0x4443,
            0x8003, 0x1100b,
        ];
        match w {
            2..=16 => Some(Field { w, poly: POLYS[w as usize - 2] }),
            32 => Some(Field { w, poly: 0x1_0040_0007 }),
            _ => None,
        }
    }

    /// Bits of an element.
    pub(crate) fn width(self) -> u32 {
        self.w
    }

    /// `a * b`.
    pub(crate) fn mul(self, a: u32, b: u32) -> u32 {
        if a <= 1 || b <= 1 {
            return a * b;
        }
        let (mut x, mut product) = (u64::from(a), 0);
        for bit in 0..self.w {
            if b >> bit & 1 == 1 {
                product ^= x;
            }
            x <<= 1;
            if x >> self.w & 1 == 1 {
                x ^= self.poly;
            }
        }
        product as u32
    }

    /// `1 / a`; 0 has no inverse and gives 0.
    pub(crate) fn inv(self, a: u32) -> u32 {
        if a <= 1 {
            return a;
        }
        // a^(2^w - 2), that is the product of a^(2^i) for 1 <= i < w.
        let (mut square, mut product) = (a, 1);
        for _ in 1..self.w {
            square = self.mul(square, square);
            product = self.mul(product, square);
        }
        product
    }

    /// Ones in the bit-matrix of "times `a`": the XORs it costs. jerasure's `cauchy_n_ones`.
    pub(crate) fn ones(self, a: u32) -> u32 {
        (0..self.w).map(|i| self.mul(a, 1 << i).count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element but 0 has an inverse, in every field: the polynomials do not factor.
    #[test]
    fn inverses() {
        for w in (2..=16).chain([32]) {
            let field = Field::new(w).expect("built");
            let top = if w == 32 { u32::MAX } else { (1 << w) - 1 };
            let step = (top / 997).max(1) as usize;
            for a in (1..=top).step_by(step) {
                assert_eq!(field.mul(a, field.inv(a)), 1, "w={w} a={a}");
            }
        }
    }

    /// Worked by hand: x^7 * x = x^8 = x^4 + x^3 + x^2 + 1.
    #[test]
    fn reduces() {
        assert_eq!(Field::BYTES.mul(0x80, 2), 0x1d);
        assert_eq!(Field::BYTES.inv(2), 142);
    }
}
