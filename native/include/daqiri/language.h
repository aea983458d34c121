/// What the headers ask of the language: C++17, and a little more of C++20.
#pragma once

#if __cplusplus < 201703L
#error "daqiri needs C++17: compile with -std=c++17 or newer"
#endif

// Structs compare by value where the language writes the comparison (C++20).
#ifdef __cpp_impl_three_way_comparison
#define DAQIRI_EQUALITY(Type) bool operator==(const Type&) const = default;
#else
#define DAQIRI_EQUALITY(Type)
#endif
