package metrics

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/requorum/requorum/schedule/status"
)

// New registers the metrics of the Status that get gives at each scrape. Get may
// be called by several goroutines at once; nil from it is an agent that knows
// nothing yet, and gives no metrics. The Status is only read. A nil registerer
// is nobody to show them to, and no error.
//
// Metrics of the Go runtime and of the process are the caller's to register.
func New(reg prometheus.Registerer, get func() *status.Status) error {
	if reg == nil {
		return nil
	}
	if err := reg.Register(&collector{get, all()}); err != nil {
		return fmt.Errorf("register the agent's metrics: %w", err)
	}
	return nil
}

// collector makes metrics of a Status at each scrape, and keeps nothing.
type collector struct {
	get     func() *status.Status
	metrics []metric
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.get()
	if s == nil {
		return
	}
	for _, m := range c.metrics {
		// Twice the same labels, or labels that are no text, would fail the whole
		// scrape.
		seen := map[string]bool{}
		m.collect(s, func(value float64, labels ...string) {
			for i := range labels {
				labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
			}
			key := strings.Join(labels, "\xff")
			if seen[key] {
				return
			}
			seen[key] = true
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}

// metric is one metric: how it is described, and where its values come from.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	desc       *prometheus.Desc
	collect    func(*status.Status, emit)
}

// emit gives out one value. Of several with the same labels the first counts.
type emit func(value float64, labels ...string)

// all are the metrics, in the order in which they are documented.
func all() []metric {
	return slices.Concat(recovery(), agent(), archiver(), jobs(), stored(), cluster())
}

func gauge(name, help string, collect func(*status.Status, emit), labels ...string) metric {
	return newMetric(prometheus.GaugeValue, name, help, collect, labels)
}

func counter(name, help string, collect func(*status.Status, emit), labels ...string) metric {
	return newMetric(prometheus.CounterValue, name, help, collect, labels)
}

func newMetric(kind prometheus.ValueType, name, help string, collect func(*status.Status, emit), labels []string) metric {
	name = "requorum_" + name
	return metric{name, help, kind, labels, prometheus.NewDesc(name, help, labels, nil), collect}
}

// one is a metric without labels that always has a value.
func one(value func(*status.Status) float64) func(*status.Status, emit) {
	return func(s *status.Status, emit emit) { emit(value(s)) }
}

// timestamp is a moment in seconds since 1970, to the microsecond; 0 for one
// that never came.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
