package s3

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
)

func isCertificate(err error) bool {
	var (
		unknown   x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		unchecked *tls.CertificateVerificationError
	)
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &unchecked)
}

// isPlainHTTP: net/http has no type for it.
func isPlainHTTP(err error) bool {
	return strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// isCredentials: the SDK has no type for finding none at all.
func isCredentials(text string) bool {
	for _, s := range []string{"failed to refresh cached credentials", "get identity: get credentials", "failed to retrieve credentials", "static credentials are empty"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// innermost is the message of the last error of the chain: the SDK and net/http
// wrap it in URLs and repetitions.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
				next = many.Unwrap()[0]
			} else {
				return err.Error()
			}
		}
		// A syscall's number says less than the operation it belongs to.
		if _, ok := next.(interface{ Timeout() bool }); ok && errors.Unwrap(next) == nil && len(err.Error()) < 200 {
			return err.Error()
		}
		err = next
	}
}
