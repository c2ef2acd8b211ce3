package config

import (
	"time"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/archive"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// DiskInterval is the archive's interval to a folder, where a segment costs
// nothing but a file.
const DiskInterval = time.Second

// Default is the configuration of an empty file, without what follows from other
// keys or from the host.
func Default() *Config {
	timing := func(enabled bool, schedule string, jitter, timeout time.Duration) Timing {
		return Timing{Enabled: enabled, Schedule: schedule, Jitter: Duration(jitter), Timeout: Duration(timeout)}
	}
	return &Config{
		Etcd: Etcd{
			DiscoverEndpoints: true,
			DialTimeout:       Duration(store.DefaultDialTimeout), CommandTimeout: Duration(store.DefaultCommandTimeout),
		},
		Repository: Repository{RetryFor: Duration(time.Minute)},
		Encryption: Encryption{Level: string(codec.DefaultLevel)},
		Archive:    Archive{Enabled: true, Size: archive.DefaultSize, SpoolLimit: archive.DefaultSpoolLimit},
		Jobs: Jobs{
			Full:       Full{Timing: timing(true, "0 1 * * *", time.Hour, snapshot.DefaultTimeout), MaxLog: 4 << 30},
			Synthetic:  Synthetic{Timing: timing(false, "0 */6 * * *", 10*time.Minute, 6*time.Hour), Entries: 1_000_000},
			Checksum:   Checksum{Timing: timing(true, "30 3 * * *", 10*time.Minute, 6*time.Hour), Sample: 100},
			Structure:  Structure{Timing: timing(true, "", 0, 2*time.Hour), AfterFull: true},
			Replay:     Replay{timing(false, "0 4 * * *", 10*time.Minute, 6*time.Hour)},
			Drill:      Drill{timing(false, "0 5 * * 0", 10*time.Minute, 6*time.Hour)},
			Prune:      Prune{timing(true, "0 6 * * *", 10*time.Minute, time.Hour)},
			Merge:      Merge{timing(true, "@hourly", 10*time.Minute, time.Hour)},
			Divergence: Divergence{timing(true, "0 3 * * 6", 10*time.Minute, 10*time.Minute)},
		},
		TimeZone: "UTC",
		Retention: Retention{
			AnyPoint: Duration(week), Last: 3, Daily: 35, Weekly: 8, Monthly: 12, Minimum: 3, Grace: Duration(day),
		},
		Resources:  Resources{Nice: 10, IONice: "best-effort:7", JobMemory: 1 << 30},
		Objectives: Objectives{VerifiedWithin: Duration(2 * day), CertificateNotice: Duration(2 * week)},
		Listen:     Listen{Address: "127.0.0.1:2390"},
		Heartbeat:  Heartbeat{Every: Duration(time.Minute), Timeout: Duration(10 * time.Second)},
		Webhook:    Webhook{Timeout: Duration(10 * time.Second)},
		Log:        Log{Format: "text", Level: "info"},
	}
}
