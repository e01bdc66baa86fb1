package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseSize reads a number of bytes: plain, or with one of the binary units (IEC 80000-13). MB and the like are refused: half of
// their users mean powers of ten.
func parseSize(text string) (uint64, error) {
	digits, shift := text, 0
	for unit, s := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			digits, shift = n, s
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no size; write bytes, or a number with KiB, MiB, GiB or TiB, for example 512MiB", text)
	case n == 0:
		return 0, errors.New("0 would refuse every call; give a size above it")
	case n > math.MaxInt64>>shift:
		return 0, fmt.Errorf("%q is larger than any machine; give less", text)
	}
	return n << shift, nil
}

// parseCount reads a number above 0.
func parseCount(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is no number; give one like 10000", text)
	}
	if n == 0 {
		return 0, errors.New("0 would refuse every call; give a number above it")
	}
	return n, nil
}
