package s3

import (
	"testing"
	"time"
)

// SettleSoon is for tests of places that stay away: these need not look for long.
func SettleSoon(c *Config) { c.settle = 3 * time.Second }

// TestPartsReachFiveTebibytes: 10,000 parts never end a stream short of what
// one object may hold, no part is larger than S3 takes, and memory stays flat
// for the first 62 GiB.
func TestPartsReachFiveTebibytes(t *testing.T) {
	var total int64
	for n := 1; n <= maxParts; n++ {
		size := int64(sizeOfPart(n))
		if size < partSize || size > 5<<30 {
			t.Fatalf("part %d has %d bytes", n, size)
		}
		if total < 62<<30 && size != partSize {
			t.Fatalf("part %d has %d bytes after %d", n, size, total)
		}
		total += size
	}
	if total < maxObject {
		t.Errorf("%d parts hold %d bytes, fewer than %d", maxParts, total, int64(maxObject))
	}
}
