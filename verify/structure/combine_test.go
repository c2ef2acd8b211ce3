package structure

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// Sums that are joined are those over all bytes at once, for sizes on both sides
// of each table's end.
func TestJoinedSums(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	all := make([]byte, 1<<18)
	for i := range all {
		all[i] = byte(rnd.Uint32())
	}
	for _, size := range []int{0, 1, 2, 255, 256, 257, 65535, 65536, 65537, 200_000} {
		first := 1 + rnd.IntN(1000)
		a, b := all[:first], all[first:first+size]
		sum := long{crc32.Checksum(a, castagnoli), int64(first)}
		sum.join(crc32.Checksum(b, castagnoli), int64(size))
		if want := crc32.Checksum(all[:first+size], castagnoli); sum.crc != want || sum.size != int64(first+size) {
			t.Errorf("%d bytes behind %d: %+v, want %x", size, first, sum, want)
		}
	}
	// Sizes beyond what can be summed here: of zeros, in two ways.
	zeros := func(n int64) long { // n is a power of two
		sum := long{crc32.Checksum([]byte{0}, castagnoli), 1}
		for sum.size < n {
			sum.join(sum.crc, sum.size)
		}
		return sum
	}
	one, two := zeros(1<<40), zeros(1<<39)
	two.join(two.crc, two.size)
	if one != two || zeros(1<<20).crc != crc32.Checksum(make([]byte, 1<<20), castagnoli) {
		t.Errorf("%+v and %+v", one, two)
	}
}
