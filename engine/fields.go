package engine

import (
	"strings"

	"github.com/sallyport/sallyport/call"
)

// fieldValues gives the values of a field in order; nil when there is none, without an allocation.
func fieldValues(headers []call.Header, name string) []string {
	var values []string
	for i := range headers {
		if strings.EqualFold(headers[i].Name, name) {
			values = append(values, headers[i].Value)
		}
	}
	return values
}
