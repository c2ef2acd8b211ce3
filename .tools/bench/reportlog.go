package main

import (
	"fmt"
	"strings"
	"time"
)

// writeReplays is one table for each log; etcd's own start is the first line.
func (r *report) writeReplays(b *strings.Builder) {
	for _, one := range r.replays {
		fmt.Fprintf(b, "\n### Replay of a log: %s\n\n%d entries, %s of log.\n\n| | rounds | entries a second | times as fast as etcd's start | wall | CPU | peak memory | without mapped files |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
			one.load, one.entries, mebibytes(one.bytes))
		for i := range one.outcomes {
			o := &one.outcomes[i]
			// By rates: the slow ones apply fewer entries.
			part := float64(one.counts[i]) / float64(one.counts[0])
			faster := o.fasterThan(&one.outcomes[0])
			faster = spread[float64]{faster.median * part, faster.least * part, faster.most * part}
			fmt.Fprintf(b, "| %s | %d | %.0f | %s | %s | %.1f s | %s | %s |\n", o.name, len(o.usages),
				float64(one.counts[i])/o.wall().median.Seconds(), times(faster), seconds(o.wall()), o.cpu().median.Seconds(), mebibytes(o.rss()), mebibytes(o.anon()))
		}
	}
}

// writeArchives is what an archiver costs and gives.
func (r *report) writeArchives(b *strings.Builder) {
	fmt.Fprintf(b, "\n### Archiving, at %d puts of 256 B a second\n\n| | a client's put: median | p99 | archiver's CPU | its peak memory | acknowledged to durable: median | p99 | most |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", archivePace.rate)
	for _, a := range r.archives {
		fmt.Fprintf(b, "| %s | %s | %s |", a.name, milliseconds(quantile(a.latency, 0.5)), milliseconds(quantile(a.latency, 0.99)))
		if len(a.durable) == 0 {
			b.WriteString(" | | | | |\n")
			continue
		}
		fmt.Fprintf(b, " %.1f %% of a core | %s | %.2f s | %.2f s | %.2f s |\n", 100*a.cpu.Seconds()/a.over.Seconds(), mebibytes(a.rss),
			quantile(a.durable, 0.5).Seconds(), quantile(a.durable, 0.99).Seconds(), a.durable[len(a.durable)-1].Seconds())
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
