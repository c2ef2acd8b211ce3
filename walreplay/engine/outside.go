package engine

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/wire"
)

// Fields of InternalRaftRequest that are no requests, and of the v2 API's
// Request, which etcd up to 3.5 puts in their place.
const (
	fieldID     protowire.Number = 1
	fieldV2     protowire.Number = 2
	fieldHeader protowire.Number = 100
	lastV2Field protowire.Number = 17 // of Request
)

// outside is what the outermost fields of a request tell.
type outside struct {
	request protowire.Number // which field is the request; 0 when it is a v2 one
	v2      []byte           // a v2 request's bytes; nil when it is none
}

// lookAt tells the three forms apart that the data of an entry has: an
// InternalRaftRequest with a v3 request, one with a v2 request in field 2, and
// a bare v2 Request.
//
// The bare one cannot be told by whether it parses as InternalRaftRequest: some
// do, with an empty put among them. But it always has numbers (such as field 5)
// where InternalRaftRequest has messages only.
func lookAt(data []byte) (outside, error) {
	var o outside
	var inner []byte
	bare := false
	for rest := data; len(rest) > 0; {
		f, n := wire.Consume(rest)
		if n < 0 {
			return o, malformed(protowire.ParseError(n))
		}
		rest = rest[n:]
		switch field := f.Number; {
		case field == fieldID, field == fieldHeader:
		case field == fieldV2:
			inner = append([]byte{}, f.Bytes...) // not nil
		case field <= lastV2Field && f.Kind == protowire.VarintType:
			bare = true
		case o.request != 0 && o.request != field && !bare:
			// A bare v2 request has several; its numbers may still come.
			o.request = -1
		case o.request == 0:
			o.request = field
		}
	}
	switch {
	case bare && inner != nil:
		return outside{v2: data}, nil
	case inner != nil && o.request == 0:
		return outside{v2: inner}, nil
	case o.request == -1 || inner != nil:
		return o, newer("entries with more than one request")
	case o.request == 0 && bare:
		return o, newer("requests that are plain numbers")
	case o.request == 0:
		return o, newer("entries without a request")
	}
	return o, nil
}

func malformed(err error) error {
	return fmt.Errorf("its data is no request: %w", err)
}

// newer says what is not known.
func newer(format string, args ...any) error {
	return fmt.Errorf("%s are not known: %w", fmt.Sprintf(format, args...), ErrNewer)
}

var errNoHeader = errors.New("its data is no request: it has no header")
