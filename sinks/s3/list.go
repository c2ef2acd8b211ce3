package s3

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

// List asks for one page of names after the other, as they are wanted. Keys
// that cannot be names (folders that other tools make, the probe's objects) are
// left out.
func (s *Sink) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		if prefix != "" && sinks.ValidName(prefix) != nil && sinks.ValidName(prefix+"x") != nil {
			return // no name starts so, and some servers refuse such a prefix
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.config.Bucket}
		if key := s.key(prefix); key != "" {
			in.Prefix = &key
		}
		if after != "" {
			in.StartAfter = aws.String(s.key(after))
		}
		last := ""
		for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(sinks.Object{}, s.explain(opList, "", err))
				return
			}
			s.reached.Store(true)
			for _, o := range page.Contents {
				key := aws.ToString(o.Key)
				name := s.name(key)
				if sinks.ValidName(name) != nil || !strings.HasPrefix(name, prefix) {
					continue
				}
				if name <= last {
					yield(sinks.Object{}, fmt.Errorf("list %s: the server lists %s after %s, which is not the order of S3: it cannot be used", s, name, last))
					return
				}
				last = name
				if name <= after {
					continue // some servers know no StartAfter
				}
				if !yield(sinks.Object{Name: name, Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
		}
	}
}
