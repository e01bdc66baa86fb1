package call

// InvalidError says which field of a request cannot be taken, why, and what to write instead. It never repeats the value: a URL
// may carry a password.
type InvalidError struct {
	// Field is the path in the request, for example "request.headers[2].name".
	Field string
	// Problem is the cause and the fix in one sentence.
	Problem string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }
