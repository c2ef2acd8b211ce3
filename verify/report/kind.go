package report

// Kind is a sort of fault.
type Kind string

// The sorts of faults, by the rung that finds them first.
const (
	// Checksum.
	KindMarker     Kind = "marker"      // the repository's marker is altered or gone
	KindTimeline   Kind = "timeline"    // a timeline's descriptor is altered or gone
	KindManifest   Kind = "manifest"    // a manifest is altered, moved or of another backup
	KindObject     Kind = "object"      // an object's bytes are not what was stored
	KindMissing    Kind = "missing"     // an object is gone
	KindSize       Kind = "size"        // an object is cut or grown
	KindSegment    Kind = "segment"     // a log segment is altered or moved
	KindFork       Kind = "fork"        // two segments hold different histories
	KindGap        Kind = "gap"         // entries that the repository claims are not there
	KindMark       Kind = "mark"        // a mark, gap record or superseded mark is altered
	KindClaim      Kind = "claim"       // a claim on a job, or a job's result, is altered or moved
	KindVerdict    Kind = "verdict"     // a verdict is altered, or the chain of verdicts is broken
	KindLogTail    Kind = "log-tail"    // a member's log ends before what it is known to have held
	KindLogCorrupt Kind = "log-corrupt" // a member's log is damaged in the middle

	// Structure.
	KindFacts      Kind = "facts"      // the manifest says otherwise than the database
	KindPage       Kind = "page"       // a page is broken, lost, or used twice
	KindBucket     Kind = "bucket"     // a bucket is missing or not one of etcd's
	KindRow        Kind = "row"        // a row cannot be decoded
	KindHistory    Kind = "history"    // a key's history is impossible
	KindLease      Kind = "lease"      // a key hangs on a lease that is not there, or a lease is impossible
	KindAuth       Kind = "auth"       // users and roles do not fit together
	KindMembership Kind = "membership" // members do not fit together
	KindHash       Kind = "hash"       // HashKV is another one than it should be

	// Replay.
	KindDifference Kind = "difference" // the replayed database differs
	KindApply      Kind = "apply"      // the log cannot be applied
	KindStamp      Kind = "stamp"      // the replay gives another hash than the cluster served

	// Drill.
	KindBoot  Kind = "boot"  // the cluster did not start or elect
	KindServe Kind = "serve" // it serves something else than the database holds
)
