package s3

const (
	mebibyte = 1 << 20
	// partSize is measured: larger parts were no faster, smaller ones cost more
	// requests.
	partSize = 16 * mebibyte
	// inFlight bounds the bytes of parts that are on their way; one more part is
	// being filled meanwhile.
	inFlight = 4 * partSize
	// maxParts and maxObject are S3's limits.
	maxParts  = 10_000
	maxObject = 5 << 40
)

// sizeOfPart is the size of the n-th part, from 1. All parts of 16 MiB would
// end a stream at 156 GiB, since there are 10,000 at most. So parts grow once
// 62 GiB are stored, which no snapshot of etcd has reached: memory is flat up
// to there.
func sizeOfPart(n int) int {
	switch {
	case n <= 4000:
		return partSize
	case n <= 5000:
		return 4 * partSize
	case n <= 6000:
		return 16 * partSize
	default:
		return 96 * partSize // 1.5 GiB
	}
}
