package structure

// join puts the CRC-32C of size more bytes behind the sum, as if it had been
// computed over all of them. A CRC is a remainder of polynomials over GF(2):
// bytes behind a text multiply its remainder by x^(8*size).
func (l *long) join(crc uint32, size int64) {
	power, n := uint32(1<<31), size // the polynomial 1: bits are reversed
	for level := 0; n > 0; level, n = level+1, n>>8 {
		if b := n & 0xff; b != 0 {
			power = multiply(power, shifts[level][b])
		}
	}
	l.crc = multiply(l.crc, power) ^ crc
	l.size += size
}

// shifts[level][b] is x^(8*b*256^level), for all sizes below 2^48.
var shifts = makeShifts()

func makeShifts() (all [6][256]uint32) {
	unit := uint32(1 << 31 >> 8) // x^8
	for level := range all {
		all[level][0] = 1 << 31
		for b := 1; b < 256; b++ {
			all[level][b] = multiply(all[level][b-1], unit)
		}
		unit = multiply(all[level][255], unit)
	}
	return all
}

// castagnoliPolynomial in reversed bits, without x^32.
const castagnoliPolynomial = 0x82f63b78

// multiply multiplies two remainders: in reversed bits the highest one of a is
// its power 0.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ castagnoliPolynomial&-(b&1)
	}
	return product
}
