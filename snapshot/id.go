package snapshot

import (
	"fmt"
	"strconv"
)

// ID is etcd's ID of a member or a cluster. As text it is 16 hexadecimal
// digits, as in etcdctl's tables and etcd's own log.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText writes the 16 hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads hexadecimal digits, as MarshalText and etcdctl write
// them.
func (id *ID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("ID %q is not a hexadecimal number of 64 bits", text)
	}
	*id = ID(n)
	return nil
}
