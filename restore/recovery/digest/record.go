package digest

import (
	"go.etcd.io/raft/v3/raftpb"
)

// Format is the number of the format that is written and read.
const Format = 1

// line is how every digest of this format begins.
const line = "requorum digest 1\n"

// lineStart is how every digest begins, of whichever format.
const lineStart = "requorum digest "

// A record begins with a byte of these bits. After it come, as unsigned varints
// where their bits say so, how much further the index is than the one before, and
// the term; then the data, with its length, or the sum that stands for it.
const (
	typeBits    = 0b0000_0011 // the entry's type; typeEnd ends the entries
	wholeBit    = 0b0000_0100 // the data is here
	movesBit    = 0b0000_1000 // it may have moved the revision: of outlines only
	skipBit     = 0b0001_0000 // the index is not the next one
	termBit     = 0b0010_0000 // the term is not that of the one before
	unknownBits = 0b1100_0000

	typeEnd = 3
)

// MaxPart bounds a document, and the data of one whole entry. Documents tell of
// members and databases, and whole entries of one member each.
const MaxPart = 16 << 20

func typeOf(bits byte) raftpb.EntryType { return raftpb.EntryType(bits & typeBits) }
