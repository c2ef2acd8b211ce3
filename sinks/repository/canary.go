package repository

import (
	"fmt"
	"strings"
)

const canaryPrefix = "canary/"

// CanaryName is the name of the object that shows whether an identity opens what
// is encrypted to a set of recipients. The fingerprint is of the set: 16
// hexadecimal digits.
func CanaryName(fingerprint string) string { return canaryPrefix + fingerprint + encryptedSuffix }

// ParseCanaryName is the opposite of CanaryName.
func ParseCanaryName(name string) (fingerprint string, err error) {
	fingerprint = strings.TrimSuffix(strings.TrimPrefix(name, canaryPrefix), encryptedSuffix)
	var errHex error
	number := parseHex(fingerprint, &errHex)
	// The round trip refuses every second spelling of a name.
	if errHex != nil || CanaryName(fmt.Sprintf("%016x", number)) != name {
		return "", fmt.Errorf("%q is not the name of a canary", name)
	}
	return fingerprint, nil
}
