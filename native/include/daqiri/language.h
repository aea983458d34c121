/// Language requirements of the headers: C++17. With C++20 structs can also be compared.
#pragma once

#if __cplusplus < 201703L
#error "daqiri needs C++17: compile with -std=c++17 or newer"
#endif

// Structs compare by value if the language generates the comparison (C++20).
#ifdef __cpp_impl_three_way_comparison
#define DAQIRI_EQUALITY(Type) bool operator==(const Type&) const = default;
#else
#define DAQIRI_EQUALITY(Type)
#endif
