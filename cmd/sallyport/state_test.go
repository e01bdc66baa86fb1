package main

import (
	"strings"
	"testing"
)

func TestOneBrokerHasTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openState(dir); err == nil || !strings.Contains(err.Error(), "in use by another broker") {
		t.Errorf("a second broker: %v", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if second.ID != first.ID || second.Boots != first.Boots+1 {
		t.Errorf("%s after %s", second, first)
	}
	if err := second.close(); err != nil {
		t.Fatal(err)
	}
}
