package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// OtherMemberError says that an address is that of another member's control process.
type OtherMemberError struct {
	Address   string
	Is, Wants string
}

func (e *OtherMemberError) Error() string {
	return fmt.Sprintf("at %s there is the control of member %q, not of %q: look at the addresses", e.Address, e.Is, e.Wants)
}

// errStrange says that an answer is none of a control process.
var errStrange = errors.New("is it the control process?")

// Answered tells of an error that somebody answered at the address, whom one cannot
// work with: a certificate is wrong or has ended, a role is missing, or it is somebody
// else. Such a host is not gone.
func Answered(err error) bool {
	var (
		refused *RefusedError
		other   *OtherMemberError
		verify  *tls.CertificateVerificationError
		no      tls.RecordHeaderError
	)
	switch {
	case err == nil:
		return false
	case errors.As(err, &refused), errors.As(err, &other), errors.As(err, &verify), errors.As(err, &no), errors.Is(err, errStrange), Alerted(err):
		return true
	}
	// net/http has no type for it.
	return strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// Alerted tells of an alert of the other side, as crypto/tls gives it: somebody speaks
// TLS there, and not with us.
func Alerted(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}
