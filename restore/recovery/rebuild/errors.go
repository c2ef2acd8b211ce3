package rebuild

import "fmt"

// OtherError says that something is not what the plan was made from.
type OtherError struct {
	Object string
	What   string // that differs
	Got    any
	Want   any // what the plan has
}

func (e *OtherError) Error() string {
	return fmt.Sprintf("%s is not what the plan was made from: %s is %v, not %v; make the plan anew, or put back what it was made from", e.Object, e.What, e.Got, e.Want)
}
